#pragma once

#include "core/cuda_stream.h"
#include "kernels/cuda/attention_task.cuh"
#include "kernels/cuda/stick_breaking_task.cuh"

namespace lyceum::cuda {

/// Launches kernels without tensor cores, for any head dimension. For BackwardTask, delta must have been computed on
/// the stream (run_delta()).
template <class T>
void run_plain(const CudaStream& stream, const ForwardTask<T>& task);
template <class T>
void run_plain(const CudaStream& stream, const BackwardTask<T>& task);
template <class T>
void run_plain(const CudaStream& stream, const StickForwardTask<T>& task);
template <class T>
void run_plain(const CudaStream& stream, const StickBackwardTask<T>& task);
/// The explicit instantiation of run_plain() for a task.
#define LYCEUM_PLAIN_INSTANCE(...) template void run_plain(const CudaStream&, const __VA_ARGS__&);

/// Computes task.delta = Σ_d out · d_out.
template <class T>
void run_delta(const CudaStream& stream, const BackwardTask<T>& task);

/// Launches the kernels for tensor cores. Returns false and launches nothing if heads are wider than max_tiled_dim, if
/// stick-breaking attention has a window or values of another width than keys, or if the build has no such kernels, as
/// in the host stand-in of tests.
bool run_on_tensor_cores(const CudaStream& stream, const ForwardTask<bfloat16>& task);
bool run_on_tensor_cores(const CudaStream& stream, const BackwardTask<bfloat16>& task);
bool run_on_tensor_cores(const CudaStream& stream, const StickForwardTask<bfloat16>& task);
bool run_on_tensor_cores(const CudaStream& stream, const StickBackwardTask<bfloat16>& task);

}  // namespace lyceum::cuda

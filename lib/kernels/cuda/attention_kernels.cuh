#pragma once

#include "core/cuda_stream.h"
#include "kernels/cuda/attention_task.cuh"
#include "kernels/cuda/stick_breaking_task.cuh"

namespace lyceum::cuda {

/// On plain cores, for any head dimension. BackwardTask's delta is there.
template <class T>
void run_plain(const CudaStream& stream, const ForwardTask<T>& task);
template <class T>
void run_plain(const CudaStream& stream, const BackwardTask<T>& task);
template <class T>
void run_plain(const CudaStream& stream, const StickForwardTask<T>& task);
template <class T>
void run_plain(const CudaStream& stream, const StickBackwardTask<T>& task);

/// delta = Σ_d out · d_out.
template <class T>
void run_delta(const CudaStream& stream, const BackwardTask<T>& task);

/// On tensor cores. Does nothing and returns false where there are none, or heads are too long for them.
bool run_on_tensor_cores(const CudaStream& stream, const ForwardTask<bfloat16>& task);
bool run_on_tensor_cores(const CudaStream& stream, const BackwardTask<bfloat16>& task);
bool run_on_tensor_cores(const CudaStream& stream, const StickForwardTask<bfloat16>& task);
bool run_on_tensor_cores(const CudaStream& stream, const StickBackwardTask<bfloat16>& task);

}  // namespace lyceum::cuda

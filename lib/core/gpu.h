#pragma once

#include <cstddef>
#include <string>

#include "core/stream.h"

namespace lyceum {

/// True if this build contains the CUDA code.
#ifdef LYCEUM_CUDA
constexpr bool built_with_cuda = true;
#else
constexpr bool built_with_cuda = false;
#endif

/// Prepares CUDA for a job of several ranks. Call this before any use of a GPU. It sets two variables in the
/// environment unless they are already set, since otherwise work that waits for another rank may block work that this
/// rank waits for, and the job would hang:
/// - CUDA_MODULE_LOADING: all kernels are loaded when CUDA starts instead of each at its first launch, since loading a
///   kernel may wait for all work of the device.
/// - CUDA_DEVICE_MAX_CONNECTIONS: the largest number of hardware queues, 32 instead of 8. Streams that share a queue
///   wait for each other, and transfers use one stream per group of ranks.
void prepare_cuda_for_ranks();
/// Returns the number of GPUs that this process sees; 0 in a build without CUDA or without a driver.
int gpu_count();

struct GpuInfo {
  std::string name;        // "NVIDIA H100 80GB HBM3"
  std::size_t memory = 0;  // total bytes of device memory
};
/// Returns name and memory of GPU `device`. Throws an Error if there is no such GPU or the build has no CUDA.
GpuInfo gpu_info(int device);
/// Returns a stream on GPU `device` (CudaStream). Throws an Error if there is no such GPU or the build has no CUDA.
Stream gpu_stream(int device);

}  // namespace lyceum

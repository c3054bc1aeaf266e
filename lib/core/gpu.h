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

/// Makes CUDA load all kernels when it starts instead of each at its first launch. Call this before any use of a GPU in
/// a job of several ranks: loading a kernel may wait for all work of the device, which may in turn wait for another
/// rank, and the job would hang. Sets CUDA_MODULE_LOADING in the environment unless it is already set.
void load_kernels_at_start();
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

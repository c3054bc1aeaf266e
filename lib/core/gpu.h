#pragma once

#include <cstddef>
#include <string>

#include "core/stream.h"

namespace lyceum {

/// Whether this program can use GPUs where there are some.
#ifdef LYCEUM_CUDA
constexpr bool built_with_cuda = true;
#else
constexpr bool built_with_cuda = false;
#endif

/// To be called before any use of a GPU in a job of several ranks: has CUDA load all kernels when it starts, instead of
/// each when it is first launched. That may wait for the whole device, and so for ranks that wait for this one. Only
/// sets CUDA_MODULE_LOADING in the environment, unless it is set.
void load_kernels_at_start();
/// GPUs that this process sees; none in a build without CUDA, or without a driver.
int gpu_count();

struct GpuInfo {
  std::string name;        // "NVIDIA H100 80GB HBM3"
  std::size_t memory = 0;  // bytes in all
};
/// Throws where there is no such GPU.
GpuInfo gpu_info(int device);
/// A stream on GPU `device`, see CudaStream. Throws where there is none.
Stream gpu_stream(int device);

}  // namespace lyceum

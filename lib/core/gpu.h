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

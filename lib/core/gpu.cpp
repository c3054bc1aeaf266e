#include "core/gpu.h"

#include <cstdlib>

#include "core/error.h"
#ifdef LYCEUM_CUDA
#include "core/cuda_check.h"
#endif

namespace lyceum {

#ifdef LYCEUM_CUDA

void prepare_cuda_for_ranks() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

int gpu_count() { return CudaStream::device_count(); }

GpuInfo gpu_info(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return {.name = properties.name, .memory = properties.totalGlobalMem};
}

Stream gpu_stream(int device) { return CudaStream(device); }

#else

void prepare_cuda_for_ranks() {}

int gpu_count() { return 0; }
GpuInfo gpu_info(int device) { fail(ExitCode::usage, "GPU {} was requested, but this build has no CUDA", device); }
Stream gpu_stream(int device) { fail(ExitCode::usage, "GPU {} was requested, but this build has no CUDA", device); }

#endif

}  // namespace lyceum

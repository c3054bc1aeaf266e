#include <cuda_runtime.h>

#include <cstring>

#include "core/cuda_check.h"
#include "core/cuda_copy.h"

namespace lyceum {

namespace {

constexpr int threads = 128;

struct Payload {
  std::byte bytes[small_copy];
};

__global__ void __launch_bounds__(threads) write_payload(std::byte* to, const Payload payload, std::size_t size) {
  for (std::size_t i = threadIdx.x; i < size; i += threads) to[i] = payload.bytes[i];
}

}  // namespace

void copy_small(const CudaStream& stream, void* device, const void* host, std::size_t bytes) {
  require(bytes <= small_copy, "a small copy of {} B: the limit is {} B", bytes, small_copy);
  Payload payload;
  std::memcpy(payload.bytes, host, bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = threads;
  config.stream = stream.handle();
  check(cudaLaunchKernelEx(&config, write_payload, static_cast<std::byte*>(device), payload, bytes), "small copy");
}

}  // namespace lyceum

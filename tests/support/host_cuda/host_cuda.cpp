#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"
#include "device_memory.h"
#include "host_stream.h"

namespace {
int current_device = 0, copied_to_host = 0;
}

int host_cuda::copies_to_host() { return copied_to_host; }
void host_cuda::copy(void* to, const void* from, std::size_t bytes) {
  const DeviceAccess access;
  std::memcpy(to, from, bytes);
}

const char* cudaGetErrorString(cudaError_t code) { return code == cudaErrorMemoryAllocation ? "out of memory" : "?"; }
const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "?";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
/// Returns HOST_CUDA_DEVICES from the environment, or 1.
cudaError_t cudaGetDeviceCount(int* count) {
  host_cuda::loads_eagerly();
  const char* devices = std::getenv("HOST_CUDA_DEVICES");
  return *count = devices ? std::atoi(devices) : 1, cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return current_device = device, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(device));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 3, cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {.name = "stand-in on the host", .totalGlobalMem = std::size_t{16} << 30};
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  *block = host_cuda::take_device_memory(bytes);
  return *block ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* block) {
  host_cuda::wait_for_device();
  return host_cuda::give_back_device_memory(block), cudaSuccess;
}
cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) {
  *block = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *block ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* block) {
  host_cuda::wait_for_device();
  return std::free(block), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyDeviceToHost) ++copied_to_host;
  host_cuda::enqueue(stream, [=] { return host_cuda::copy(to, from, bytes), true; });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t stream) {
  host_cuda::enqueue(stream, [=] { return std::memset(block, value, bytes), true; });
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void* block, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t stream) {
  host_cuda::enqueue(stream, [=] {
    for (std::size_t row = 0; row < height; ++row) std::memset(static_cast<char*>(block) + row * pitch, value, width);
    return true;
  });
  return cudaSuccess;
}

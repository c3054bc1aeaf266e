#include <chrono>
#include <cstdlib>

#include "cuda_runtime.h"
#include "device_memory.h"

struct CUevent_st {
  std::chrono::steady_clock::time_point when;
};

const char* cudaGetErrorString(cudaError_t code) { return code == cudaErrorMemoryAllocation ? "out of memory" : "?"; }
const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "?";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 3, cudaSuccess; }

cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  *block = host_cuda::take_device_memory(bytes);
  return *block ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* block) { return host_cuda::give_back_device_memory(block), cudaSuccess; }
cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) {
  *block = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *block ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* block) { return std::free(block), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  const host_cuda::DeviceAccess access;
  return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t) {
  const host_cuda::DeviceAccess access;
  return std::memset(block, value, bytes), cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void* block, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t) {
  const host_cuda::DeviceAccess access;
  for (std::size_t row = 0; row < height; ++row) std::memset(static_cast<char*>(block) + row * pitch, value, width);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = new CUstream_st, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->when = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
  return cudaSuccess;
}

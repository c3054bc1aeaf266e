#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/cuda_stream.h"
#include "core/dtype.h"
#include "core/error.h"

// Device memory and timing of GPU work, for benchmarks.

namespace lyceum {

inline void must(cudaError_t code, const char* call) {
  require(code == cudaSuccess, "{}: {}", call, cudaGetErrorString(code));
}

/// Owns device memory for `count` elements of T, outside of the stream's allocator.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    must(cudaMalloc(&data_, std::max<std::size_t>(count, 1) * sizeof(T)), "cudaMalloc");
  }
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  T* data() const { return data_; }
  std::size_t size() const { return count_; }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// Fills with pseudo-random bf16 numbers in [-1, 1): zeros or a regular pattern would make multipliers draw less power.
static __global__ void fill_kernel(std::uint16_t* values, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint32_t word = static_cast<std::uint32_t>(i) * 2654435761u + seed;
    word = (word ^ word >> 16) * 0x85ebca6bu;
    word = (word ^ word >> 13) * 0xc2b2ae35u;
    const float value = static_cast<float>(word ^ word >> 16) * 0x1p-31f - 1.0f;
    values[i] = static_cast<std::uint16_t>(__float_as_uint(value) >> 16);
  }
}

/// Fills an array on the stream, see fill_kernel().
inline void fill(const CudaStream& stream, const DeviceArray<bfloat16>& array, std::uint32_t seed) {
  fill_kernel<<<1024, 256, 0, stream.handle()>>>(reinterpret_cast<std::uint16_t*>(array.data()), array.size(), seed);
  must(cudaGetLastError(), "fill_kernel");
}

/// Measures one call with a pair of events and returns seconds.
class Timer {
 public:
  explicit Timer(const CudaStream& stream) : stream_(stream) {
    must(cudaEventCreate(&start_), "cudaEventCreate");
    must(cudaEventCreate(&stop_), "cudaEventCreate");
  }
  Timer(const Timer&) = delete;
  ~Timer() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  double once(const std::function<void()>& work) {
    must(cudaEventRecord(start_, stream_.handle()), "cudaEventRecord");
    work();
    must(cudaEventRecord(stop_, stream_.handle()), "cudaEventRecord");
    must(cudaEventSynchronize(stop_), "cudaEventSynchronize");
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  const CudaStream& stream_;
  cudaEvent_t start_, stop_;
};

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Returns the median seconds of two pieces of work, which run in turns.
inline std::pair<double, double> compare(const CudaStream& stream, int rounds, const std::function<void()>& one,
                                         const std::function<void()>& other) {
  Timer timer(stream);
  std::vector<double> times, other_times;
  for (int round = -3; round < rounds; ++round) {
    const double time = timer.once(one), other_time = timer.once(other);
    if (round < 0) continue;
    times.push_back(time);
    other_times.push_back(other_time);
  }
  return {median(times), median(other_times)};
}

}  // namespace lyceum

#pragma once

// Executes kernels on the host. Blocks run one after another. The threads of a block are fibres that switch only at
// barriers and shuffles, in alternately ascending and descending order, so that a missing barrier changes the result.

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>

#include "cuda_runtime_api.h"
#include "host_stream.h"

#define __global__
#define __device__
#define __host__
#define __shared__ thread_local  // unlike static, this can follow extern
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

namespace host_cuda {
void run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& thread);
void wait_for_block();
void wait_for_warp();
/// Returns the value, as 8 bytes, that lane `lane` of this warp passed. All lanes of the warp must call it.
std::uint64_t exchange(std::uint64_t value, unsigned lane);
}  // namespace host_cuda

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  if (!host_cuda::load(reinterpret_cast<const void*>(kernel))) return cudaErrorInvalidValue;
  [&](Parameters... values) {
    host_cuda::enqueue(config->stream, [=, launch = *config] {
      host_cuda::run_grid(launch, [&] { kernel(values...); });
      return true;
    });
  }(arguments...);
  return cudaSuccess;
}

/// The most shared memory, in bytes, that a launch may request per block.
constexpr int host_cuda_shared_bytes = 227 << 10;
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*)(Parameters...), cudaFuncAttribute, int bytes) {
  return bytes <= host_cuda_shared_bytes ? cudaSuccess : cudaErrorInvalidValue;
}

inline void __syncthreads() { host_cuda::wait_for_block(); }
inline void __syncwarp(unsigned = 0xffffffffu) { host_cuda::wait_for_warp(); }

template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const std::uint64_t word = host_cuda::exchange(std::bit_cast<Bits>(value), static_cast<unsigned>(lane) % 32);
  return std::bit_cast<T>(static_cast<Bits>(word));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ distance);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return __shfl_sync(mask, value, static_cast<int>(lane >= distance ? lane - distance : lane));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return __shfl_sync(mask, value, static_cast<int>(lane + distance < 32 ? lane + distance : lane));
}

inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  for (int distance = 1; distance < 32; distance *= 2) value = std::max(value, __shfl_xor_sync(mask, value, distance));
  return value;
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  for (int distance = 1; distance < 32; distance *= 2) value = std::min(value, __shfl_xor_sync(mask, value, distance));
  return value;
}

template <class T>
T atomicAdd(T* address, T value) {
  const T old = *address;
  *address = old + value;
  return old;
}
template <class T>
T atomicMax(T* address, T value) {
  const T old = *address;
  *address = std::max(old, value);
  return old;
}
inline int atomicCAS(int* address, int compare, int value) {
  const int old = *address;
  if (old == compare) *address = value;
  return old;
}

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __double2float_rz(double value) {
  const float nearest = static_cast<float>(value);
  return std::abs(static_cast<double>(nearest)) > std::abs(value) ? std::nextafter(nearest, 0.0f) : nearest;
}

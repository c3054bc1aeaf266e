#pragma once

#include "kernels/cuda/device.cuh"

namespace lyceum {

/// Returns the sum of `value` over this lane and all lower lanes. All lanes of the warp must call it.
template <class A>
__device__ A sum_to_here(A value) {
  const unsigned lane = threadIdx.x % warp_size;
  for (unsigned distance = 1; distance < warp_size; distance *= 2) {
    const A before = __shfl_up_sync(whole_warp, value, distance);
    if (lane >= distance) value += before;
  }
  return value;
}
/// Returns the sum of `value` over this lane and all higher lanes. All lanes of the warp must call it.
template <class A>
__device__ A sum_from_here(A value) {
  const unsigned lane = threadIdx.x % warp_size;
  for (unsigned distance = 1; distance < warp_size; distance *= 2) {
    const A behind = __shfl_down_sync(whole_warp, value, distance);
    if (lane + distance < warp_size) value += behind;
  }
  return value;
}

/// Returns the sum of `value` over the threads before this one, and in `total` that over all threads. All `threads`
/// threads of the block must call it: it contains barriers.
template <int threads>
__device__ std::int64_t exclusive_sum(std::int64_t value, std::int64_t& total) {
  constexpr int warps = threads / warp_size;
  __shared__ std::int64_t sums[warps];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int64_t inclusive = sum_to_here(value);
  __syncthreads();  // all threads have read the sums of the previous call
  if (lane == warp_size - 1) sums[warp] = inclusive;
  __syncthreads();
  std::int64_t earlier = 0;
  total = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) earlier += sums[w];
    total += sums[w];
  }
  return earlier + inclusive - value;
}

}  // namespace lyceum

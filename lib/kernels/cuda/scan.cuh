#pragma once

#include "kernels/cuda/device.cuh"

namespace lyceum {

/// Σ of the values of the threads before this one; `total`: of all. A block of `threads` threads, all of which come
/// here.
template <int threads>
__device__ std::int64_t exclusive_sum(std::int64_t value, std::int64_t& total) {
  constexpr int warps = threads / warp_size;
  __shared__ std::int64_t sums[warps];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  std::int64_t inclusive = value;
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const std::int64_t before = __shfl_up_sync(whole_warp, inclusive, distance);
    if (lane >= distance) inclusive += before;
  }
  __syncthreads();  // the last call's sums are read
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

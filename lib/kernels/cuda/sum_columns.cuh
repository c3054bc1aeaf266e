#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "kernels/cuda/device.cuh"

namespace lyceum {

constexpr int sum_columns_threads = 256, sum_columns_warps = sum_columns_threads / warp_size;

/// Calls take(c, sum of column c) for each of the warp_size columns that belong to thread block `block`, once per
/// column, in one lane of warp 0. Warp w sums every sum_columns_warps-th row, from row w on; then the warps' sums are
/// added in order. All threads of the block must call it.
template <class Take>
__device__ void sum_columns_of(const Matrix<const double>& x, unsigned block, const Take& take) {
  __shared__ double partial[sum_columns_warps][warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t c = static_cast<std::int64_t>(block) * warp_size + lane;
  double sum = 0;
  for (std::int64_t r = warp; r < x.rows && c < x.cols; r += sum_columns_warps) sum += x.row(r)[c];
  partial[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || c >= x.cols) return;
  for (int w = 1; w < sum_columns_warps; ++w) sum += partial[w][lane];
  take(c, sum);
}

}  // namespace lyceum

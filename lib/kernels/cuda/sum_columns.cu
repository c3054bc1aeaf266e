#include "kernels/checks.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sum_columns.cuh"
#include "kernels/sum_columns.h"

namespace lyceum {

namespace {

__global__ void __launch_bounds__(sum_columns_threads) sum_columns(SumColumns sums) {
  sum_columns_of(sums.x, blockIdx.x, [&](std::int64_t c, double sum) { sums.sums[c] += sum; });
}

constexpr int sum_counts_threads = 128;

/// A grid-stride loop over columns.
__global__ void __launch_bounds__(sum_counts_threads) sum_counts(SumCounts sum) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * sum_counts_threads;
  for (std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * sum_counts_threads + threadIdx.x; c < sum.counts.cols;
       c += stride) {
    std::int64_t all = 0;
    for (std::int64_t r = 0; r < sum.counts.rows; ++r) all += sum.counts.row(r)[c];
    sum.sums[c] = all;
  }
}

}  // namespace

void run(const CudaStream& stream, const SumColumns& sum) {
  require_length("SumColumns", "sums", sum.sums, sum.x.cols);
  start(stream, "SumColumns", sum_columns, blocks_for(sum.x.cols, warp_size), sum_columns_threads, sum);
}

void run(const CudaStream& stream, const SumCounts& sum) {
  require_length("SumCounts", "sums", sum.sums, sum.counts.cols);
  start(stream, "SumCounts", sum_counts, blocks_for(sum.counts.cols, sum_counts_threads), sum_counts_threads, sum);
}

}  // namespace lyceum

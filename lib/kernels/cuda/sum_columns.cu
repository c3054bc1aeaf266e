#include "kernels/checks.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sum_columns.cuh"
#include "kernels/sum_columns.h"

namespace lyceum {

namespace {

__global__ void __launch_bounds__(sum_columns_threads) sum_columns(SumColumns sums) {
  sum_columns_of(sums.x, blockIdx.x, [&](std::int64_t c, double sum) { sums.sums[c] += sum; });
}

}  // namespace

void run(const CudaStream& stream, const SumColumns& sum) {
  require_length("SumColumns", "sums", sum.sums, sum.x.cols);
  start(stream, "SumColumns", sum_columns, blocks_for(sum.x.cols, warp_size), sum_columns_threads, sum);
}

}  // namespace lyceum

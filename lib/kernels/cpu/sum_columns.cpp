#include "kernels/sum_columns.h"

#include <algorithm>
#include <cstdint>

#include "kernels/checks.h"

namespace lyceum {

void run(const CpuStream&, const SumColumns& sum) {
  require_length("SumColumns", "sums", sum.sums, sum.x.cols);
  for (std::int64_t r = 0; r < sum.x.rows; ++r) {
    for (std::int64_t c = 0; c < sum.x.cols; ++c) sum.sums[static_cast<std::size_t>(c)] += sum.x.row(r)[c];
  }
}

void run(const CpuStream&, const SumCounts& sum) {
  require_length("SumCounts", "sums", sum.sums, sum.counts.cols);
  std::ranges::fill(sum.sums, 0);
  for (std::int64_t r = 0; r < sum.counts.rows; ++r) {
    for (std::int64_t c = 0; c < sum.counts.cols; ++c) sum.sums[static_cast<std::size_t>(c)] += sum.counts.row(r)[c];
  }
}

}  // namespace lyceum

#include "kernels/head_columns.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/tile_gemm.h"
#include "kernels/head_columns_checks.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const CopyHeads<T>& copy) {
  require_fitting(copy);
  for_each_row(stream, copy.to.of.rows, copy.heads * copy.to.cols, [&](std::int64_t t) {
    for (std::int64_t head = 0; head < copy.heads; ++head) {
      std::copy_n(copy.from.at(t, head), copy.to.cols, copy.to.at(t, head));
    }
  });
}

template <class T>
void run(const CpuStream& stream, const SumHeads<T>& sum) {
  using A = Accumulator<T>;
  require_fitting(sum);
  const std::int64_t cols = sum.to.cols;
  parallel_for(stream, sum.to.rows, rows_per_thread(sum.heads * cols), [&](std::int64_t first, std::int64_t last) {
    std::vector<A> totals(static_cast<std::size_t>(cols));
    for (std::int64_t t = first; t < last; ++t) {
      std::fill(totals.begin(), totals.end(), A{0});
      A* total = totals.data();
      for (std::int64_t head = 0; head < sum.heads; ++head) {
        const T* x = sum.from.at(t, head);
#pragma omp simd
        for (std::int64_t c = 0; c < cols; ++c) total[c] += static_cast<A>(x[c]);
      }
      for (std::int64_t c = 0; c < cols; ++c) sum.to.row(t)[c] = static_cast<T>(total[c]);
    }
  });
}

template <class T>
void run(const CpuStream& stream, const MultiplyHeads<T>& product) {
  require_fitting(product);
  const HeadColumns<const T>& x = product.x;
  const HeadColumns<T>& y = product.y;
  const std::int64_t tokens = y.of.rows, rows = product.transpose ? y.cols : x.cols;
  if (tokens == 0 || y.cols == 0) return;
  const TileGemm multiply = TileGemm::make<T>(stream, tokens, y.cols);
  parallel_tasks(stream.threads(), product.heads, [&](std::int64_t head, int thread) {
    multiply(Gemm<T>{.a = Matrix<const T>(x.at(0, head), tokens, x.cols, x.of.stride),
                     .b = product.weights.rows_from(product.first_row + head * product.row_step, rows),
                     .c = Matrix<T>(y.at(0, head), tokens, y.cols, y.of.stride),
                     .transpose_b = product.transpose},
             thread);
  });
}

LYCEUM_HEAD_COLUMNS_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

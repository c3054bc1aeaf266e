#include "kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "kernels/checks.h"
#include "kernels/cpu/reference_gemm.h"
#include "kernels/cpu/tile_gemm.h"

namespace lyceum {

namespace {

template <class T, class Out>
void require_fitting(const Gemm<T, Out>& gemm) {
  const auto& [a, b, c, transpose_a, transpose_b, accumulate] = gemm;
  const std::int64_t a_depth = transpose_a ? a.rows : a.cols, b_depth = transpose_b ? b.cols : b.rows;
  require(c.rows == (transpose_a ? a.cols : a.rows) && c.cols == (transpose_b ? b.rows : b.cols) && a_depth == b_depth,
          "GEMM: {} x {}{} times {} x {}{} does not fit a result of {} x {}", a.rows, a.cols,
          transpose_a ? " transposed" : "", b.rows, b.cols, transpose_b ? " transposed" : "", c.rows, c.cols);
}

}  // namespace

template <class T, class Out>
void run(const CpuStream& stream, const Gemm<T, Out>& gemm) {
  run(stream, GemmBatch<T, Out>{gemm, 1});
}

template <class T, class Out>
void run(const CpuStream& stream, const GemmBatch<T, Out>& batch) {
  require_fitting(batch.first);
  if constexpr (std::is_same_v<T, double>) {
    for (std::int64_t i = 0; i < batch.count; ++i) reference::run(stream, batch.at(i));
  } else {
    // Four tiles per thread balance the load if other processes use some of the cores.
    const std::int64_t wanted = stream.threads() > 1 ? 4 * stream.threads() : 1;
    const Matrix<Out>& c = batch.first.c;
    const Tiling tiling =
        Tiling::of(c.rows, c.cols, batch.count > 0 ? (wanted + batch.count - 1) / batch.count : wanted);
    const TileGemm multiply = TileGemm::make<T>(stream, tiling.rows, tiling.cols);
    parallel_tasks(stream.threads(), batch.count * tiling.count(), [&](std::int64_t task, int thread) {
      const std::int64_t i = task % tiling.count();
      const std::int64_t row = i / tiling.col_tiles * tiling.rows, col = i % tiling.col_tiles * tiling.cols;
      multiply(tile_of(batch.at(task / tiling.count()), row, std::min(tiling.rows, c.rows - row), col,
                       std::min(tiling.cols, c.cols - col)),
               thread);
    });
  }
}

void run(const CpuStream& stream, const SplitWeightGrad& grad) {
  const std::int64_t out = grad.dw.rows;
  const std::int64_t width = require_halves("SplitWeightGrad", grad.parts, grad.x.rows, out);
  for (const std::int64_t half : {0, 1}) {
    run(stream, Gemm<bfloat16, float>{.a = grad.parts.cols_from(half * width, out),
                                      .b = grad.x,
                                      .c = grad.dw,
                                      .transpose_a = true,
                                      .accumulate = grad.accumulate || half == 1});
  }
}

LYCEUM_GEMM_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

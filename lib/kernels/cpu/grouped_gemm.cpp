#include "kernels/grouped_gemm.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/cpu/reference_gemm.h"
#include "kernels/cpu/tile_gemm.h"

namespace lyceum {

namespace {

/// Cuts the GEMMs into tiles and lets the threads take them, the dearest first, so that experts of very different
/// sizes end together. No tile's sum is split, so the result does not depend on who takes what.
template <class T, class Out>
void run_all(const CpuStream& stream, const std::vector<Gemm<T, Out>>& gemms) {
  const auto busy = std::count_if(gemms.begin(), gemms.end(), [](const auto& gemm) { return gemm.c.size() > 0; });
  if (busy == 0) return;
  const std::int64_t wanted = stream.threads() > 1 ? (4 * stream.threads() + busy - 1) / busy : 1;
  std::vector<Gemm<T, Out>> tiles;
  std::int64_t max_rows = 0, max_cols = 0;
  for (const Gemm<T, Out>& gemm : gemms) {
    const Tiling tiling = Tiling::of(gemm.c.rows, gemm.c.cols, wanted);
    for (std::int64_t row = 0; row < gemm.c.rows; row += tiling.rows) {
      for (std::int64_t col = 0; col < gemm.c.cols; col += tiling.cols) {
        tiles.push_back(tile_of(gemm, row, std::min(tiling.rows, gemm.c.rows - row), col,
                                std::min(tiling.cols, gemm.c.cols - col)));
      }
    }
    max_rows = std::max(max_rows, tiling.rows);
    max_cols = std::max(max_cols, tiling.cols);
  }
  const auto work = [](const Gemm<T, Out>& tile) {
    return tile.c.size() * tile.a.size() / (tile.transpose_a ? tile.a.cols : tile.a.rows);
  };
  std::stable_sort(tiles.begin(), tiles.end(), [&](const auto& a, const auto& b) { return work(a) > work(b); });
  const TileGemm multiply = TileGemm::make<T>(stream, max_rows, max_cols);
  parallel_tasks(stream.threads(), static_cast<std::int64_t>(tiles.size()),
                 [&](std::int64_t i, int thread) { multiply(tiles[static_cast<std::size_t>(i)], thread); });
}

/// oneDNN compiles a bf16 product for each count of rows, so it is given rows in multiples of the alignment.
template <class T>
bool takes_padding(const CpuStream& stream) {
  return std::is_same_v<T, bfloat16> && uses_native_bf16(stream);
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const GroupedGemm<T>& grouped) {
  const Segments& segments = grouped.segments;
  require(grouped.weights.size() == segments.rows.size(), "{} weights for {} segments", grouped.weights.size(),
          segments.rows.size());
  std::vector<Gemm<T>> gemms;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const auto& weight = grouped.weights[static_cast<std::size_t>(e)];
    const Matrix<const T> x = grouped.x.segment(segments, e);
    const Matrix<T> y = grouped.y.segment(segments, e);
    const std::int64_t in = grouped.transpose_weights ? weight.cols : weight.rows;
    const std::int64_t out = grouped.transpose_weights ? weight.rows : weight.cols;
    require(in == x.cols && out == y.cols, "expert {} takes {} to {} columns, its rows are {} and {} wide", e, in, out,
            x.cols, y.cols);
    const std::int64_t rows = takes_padding<T>(stream) ? y.rows : segments.rows[static_cast<std::size_t>(e)];
    gemms.push_back(
        {.a = x.rows_from(0, rows), .b = weight, .c = y.rows_from(0, rows), .transpose_b = grouped.transpose_weights});
  }
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, grouped);
  } else {
    run_all(stream, gemms);
    for (std::int64_t e = 0; e < segments.count(); ++e) {
      const Matrix<T> y = grouped.y.segment(segments, e);
      std::fill(y.row(segments.rows[static_cast<std::size_t>(e)]), y.row(y.rows), T(0));
    }
  }
}

template <class T>
void run(const CpuStream& stream, const GroupedWeightGrad<T>& grouped) {
  const Segments& segments = grouped.segments;
  require(grouped.d_weights.size() == segments.rows.size(), "{} weight gradients for {} segments",
          grouped.d_weights.size(), segments.rows.size());
  std::vector<Gemm<T, Accumulator<T>>> gemms;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const auto& d_weight = grouped.d_weights[static_cast<std::size_t>(e)];
    const Matrix<const T> dy = grouped.dy.segment(segments, e), x = grouped.x.segment(segments, e);
    require(d_weight.rows == dy.cols && d_weight.cols == x.cols,
            "the gradient of expert {} is {} x {}, its rows are {} and {} wide", e, d_weight.rows, d_weight.cols,
            dy.cols, x.cols);
    const std::int64_t rows = takes_padding<T>(stream) ? dy.rows : segments.rows[static_cast<std::size_t>(e)];
    if (rows == 0) continue;
    gemms.push_back({.a = dy.rows_from(0, rows),
                     .b = x.rows_from(0, rows),
                     .c = d_weight,
                     .transpose_a = true,
                     .accumulate = true});
  }
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, grouped);
  } else {
    run_all(stream, gemms);
  }
}

template void run(const CpuStream&, const GroupedGemm<float>&);
template void run(const CpuStream&, const GroupedGemm<double>&);
template void run(const CpuStream&, const GroupedGemm<bfloat16>&);
template void run(const CpuStream&, const GroupedWeightGrad<float>&);
template void run(const CpuStream&, const GroupedWeightGrad<double>&);
template void run(const CpuStream&, const GroupedWeightGrad<bfloat16>&);

}  // namespace lyceum

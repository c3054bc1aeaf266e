#include "kernels/grouped_gemm.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/reference_gemm.h"
#include "kernels/cpu/tile_gemm.h"

namespace lyceum {

namespace {

/// The product of one expert, or a tile of it. If the rows of an operand are picked, its `data` points into row 0 of
/// the matrix that they are picked from, at the operand's first column; its extents are those of the picked rows.
template <class T, class Out>
struct Product {
  Gemm<T, Out> gemm;
  const std::int64_t* source = nullptr;  // [filled], as PickedRows::source; null if no rows are picked
  std::int64_t filled = 0;               // number of picked rows that are not padding; rows after them are zero
  bool b_is_picked = false;              // true: the rows of b are picked; false: those of a
  std::int64_t work = 0;                 // multiplications of the largest tile of the whole product

  /// Returns the operand whose rows may be picked.
  Matrix<const T>& picked() { return b_is_picked ? gemm.b : gemm.a; }
  Product tile(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) const {
    Product tile{tile_of(gemm, row, rows, col, cols), source, filled, b_is_picked, work};
    if (source && !gemm.transpose_a) {
      tile.source += row;
      tile.filled = std::clamp<std::int64_t>(filled - row, 0, rows);
    }
    return tile;
  }
};

/// Copies picked rows to scratch memory of the thread that multiplies them. If successive tiles of a thread have the
/// same picked rows, they are copied once.
template <class T>
class PickedRowGatherer {
 public:
  /// `most`: largest number of elements of a tile's picked rows. `picked` must outlive the object.
  PickedRowGatherer(const CpuStream& stream, const PickedRows<T>& picked, std::int64_t most)
      : picked_(picked),
        scratch_(stream, most * static_cast<std::int64_t>(sizeof(T))),
        gathered_(static_cast<std::size_t>(stream.threads())) {}

  /// Makes the picked operand of `tile` refer to a copy of its rows, which is valid until the thread's next call.
  template <class Out>
  void gather(Product<T, Out>& tile, int thread) {
    Matrix<const T>& x = tile.picked();
    const Matrix<T> rows(reinterpret_cast<T*>(scratch_.of(thread)), x.rows, x.cols);
    const GatheredRows wanted{tile.source, x.data, x.rows};
    GatheredRows& gathered = gathered_[static_cast<std::size_t>(thread)];
    if (!(gathered == wanted)) copy(tile, rows);
    gathered = wanted;
    x = rows;
  }

 private:
  /// The picked rows in a thread's scratch memory.
  struct GatheredRows {
    const std::int64_t* source = nullptr;
    const T* column = nullptr;
    std::int64_t rows = 0;  // compared too, because an expert without rows has the same `source` as the next one
    bool operator==(const GatheredRows&) const = default;
  };
  template <class Out>
  void copy(Product<T, Out>& tile, const Matrix<T>& to) const {
    for (std::int64_t r = 0; r < to.rows; ++r) {
      const std::int64_t source = r < tile.filled ? tile.source[r] : -1;
      if (source < 0) {
        std::fill_n(to.row(r), to.cols, T{});
      } else {
        std::copy_n(tile.picked().data + source / picked_.divisor * picked_.x.stride, to.cols, to.row(r));
      }
    }
  }

  const PickedRows<T>& picked_;
  ThreadScratch scratch_;
  std::vector<GatheredRows> gathered_;  // by thread
};

/// Divides the products into tiles, which threads compute in descending order of work, so that all threads finish at
/// about the same time even if experts differ in size. One thread computes all of a tile, so the result does not depend
/// on the assignment of tiles to threads.
template <class T, class Out>
void run_all(const CpuStream& stream, std::vector<Product<T, Out>>& products, const PickedRows<T>& picked) {
  const auto depth_of = [](const Product<T, Out>& p) { return p.gemm.transpose_a ? p.gemm.a.rows : p.gemm.a.cols; };
  const auto busy = std::count_if(products.begin(), products.end(),
                                  [&](const auto& p) { return p.gemm.c.size() > 0 && depth_of(p) > 0; });
  const std::int64_t wanted = stream.threads() > 1 && busy > 0 ? (4 * stream.threads() + busy - 1) / busy : 1;
  std::vector<Product<T, Out>> tiles;
  std::int64_t max_rows = 0, max_cols = 0, most_picked = 0;
  for (Product<T, Out>& product : products) {
    const Matrix<Out>& c = product.gemm.c;
    const Tiling tiling = Tiling::of(c.rows, c.cols, wanted);
    product.work = std::min(tiling.rows, c.rows) * std::min(tiling.cols, c.cols) * depth_of(product);
    const auto add = [&](std::int64_t row, std::int64_t col) {
      tiles.push_back(product.tile(row, std::min(tiling.rows, c.rows - row), col, std::min(tiling.cols, c.cols - col)));
      if (picked) most_picked = std::max(most_picked, tiles.back().picked().size());
    };
    // Tiles that read the same picked rows follow one another, so that the PickedRowGatherer can reuse its copy.
    if (product.b_is_picked) {
      for (std::int64_t col = 0; col < c.cols; col += tiling.cols) {
        for (std::int64_t row = 0; row < c.rows; row += tiling.rows) add(row, col);
      }
    } else {
      for (std::int64_t row = 0; row < c.rows; row += tiling.rows) {
        for (std::int64_t col = 0; col < c.cols; col += tiling.cols) add(row, col);
      }
    }
    max_rows = std::max(max_rows, tiling.rows);
    max_cols = std::max(max_cols, tiling.cols);
  }
  if (tiles.empty()) return;
  std::stable_sort(tiles.begin(), tiles.end(), [](const auto& a, const auto& b) { return a.work > b.work; });
  const TileGemm multiply = TileGemm::make<T>(stream, max_rows, max_cols);
  PickedRowGatherer<T> gatherer(stream, picked, most_picked);
  parallel_tasks(stream.threads(), static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i, int thread) {
    Product<T, Out>& tile = tiles[static_cast<std::size_t>(i)];
    if (tile.source) gatherer.gather(tile, thread);
    multiply(tile.gemm, thread);
  });
}

/// True if products include the padding rows. oneDNN compiles a bf16 product for each number of rows, so it gets only
/// multiples of Segments::alignment.
template <class T>
bool includes_padding(const CpuStream& stream) {
  return std::is_same_v<T, bfloat16> && uses_native_bf16(stream);
}

/// Throws an Error if there are too few sources or a source is out of range.
template <class T>
void check_picked(const PickedRows<T>& picked, const Segments& segments) {
  if (!picked) return;
  require(std::ssize(picked.source) >= segments.total(), "a grouped product has {} sources for {} rows",
          picked.source.size(), segments.total());
  require_indices("PickedRows", "source", picked.source, std::numeric_limits<std::int64_t>::min(),
                  picked.x.rows * picked.divisor);
}

/// Returns segment e of x. If rows are picked, returns a matrix with the segment's extents whose data is that of the
/// matrix they are picked from (see Product).
template <class T>
Matrix<const T> rows_of(const SegmentedMatrix<const T>& x, const PickedRows<T>& picked, const Segments& segments,
                        std::int64_t e) {
  if (!picked) return x.segment(segments, e);
  const auto i = static_cast<std::size_t>(e);
  return {picked.x.data, segments.begin[i + 1] - segments.begin[i], picked.x.cols, 0};
}

/// Returns PickedRows::source from the first row of segment e on; null if no rows are picked.
template <class T>
const std::int64_t* source_of(const PickedRows<T>& picked, const Segments& segments, std::int64_t e) {
  return picked ? picked.source.data() + segments.begin[static_cast<std::size_t>(e)] : nullptr;
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const GroupedGemm<T>& grouped) {
  const Segments& segments = grouped.segments;
  const PickedRows<T>& picked = grouped.picked;
  require(grouped.weights.size() == segments.rows.size(), "a grouped product has {} weights for {} segments",
          grouped.weights.size(), segments.rows.size());
  check_picked(picked, segments);
  std::vector<Product<T, T>> products;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const auto& weight = grouped.weights[static_cast<std::size_t>(e)];
    const Matrix<const T> x = rows_of(grouped.x, picked, segments, e);
    const Matrix<T> y = grouped.y.segment(segments, e);
    const std::int64_t in = grouped.transpose_weights ? weight.cols : weight.rows;
    const std::int64_t out = grouped.transpose_weights ? weight.rows : weight.cols;
    require(in == x.cols && out == y.cols, "the weight of expert {} maps {} to {} columns, but its rows have {} and {}",
            e, in, out, x.cols, y.cols);
    const std::int64_t filled = segments.rows[static_cast<std::size_t>(e)];
    const std::int64_t rows = includes_padding<T>(stream) ? y.rows : filled;
    products.push_back(
        {{.a = x.rows_from(0, rows), .b = weight, .c = y.rows_from(0, rows), .transpose_b = grouped.transpose_weights},
         source_of(picked, segments, e),
         filled});
  }
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, grouped);
  } else {
    run_all(stream, products, picked);
    for (std::int64_t e = 0; e < segments.count(); ++e) {
      const Matrix<T> y = grouped.y.segment(segments, e);
      std::fill(y.row(segments.rows[static_cast<std::size_t>(e)]), y.row(y.rows), T(0));
    }
  }
}

template <class T>
void run(const CpuStream& stream, const GroupedWeightGrad<T>& grouped) {
  const Segments& segments = grouped.segments;
  require(grouped.d_weights.size() == segments.rows.size(), "a grouped product has {} weight gradients for {} segments",
          grouped.d_weights.size(), segments.rows.size());
  require(!grouped.picked || !grouped.picked_dy, "a weight gradient can pick the rows of only one operand");
  const bool of_dy = static_cast<bool>(grouped.picked_dy);
  const PickedRows<T>& picked = of_dy ? grouped.picked_dy : grouped.picked;
  check_picked(picked, segments);
  std::vector<Product<T, Accumulator<T>>> products;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const auto& d_weight = grouped.d_weights[static_cast<std::size_t>(e)];
    const Matrix<const T> dy = rows_of(grouped.dy, grouped.picked_dy, segments, e);
    const Matrix<const T> x = rows_of(grouped.x, grouped.picked, segments, e);
    require(d_weight.rows == dy.cols && d_weight.cols == x.cols,
            "the weight gradient of expert {} is {} x {}, but its rows have {} and {} columns", e, d_weight.rows,
            d_weight.cols, dy.cols, x.cols);
    const std::int64_t filled = segments.rows[static_cast<std::size_t>(e)];
    const std::int64_t rows = includes_padding<T>(stream) ? dy.rows : filled;
    if (rows == 0 && grouped.accumulate) continue;
    products.push_back({{.a = dy.rows_from(0, rows),
                         .b = x.rows_from(0, rows),
                         .c = d_weight,
                         .transpose_a = true,
                         .accumulate = grouped.accumulate},
                        source_of(picked, segments, e),
                        filled,
                        !of_dy});
  }
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, grouped);
  } else {
    run_all(stream, products, picked);
  }
}

LYCEUM_GROUPED_GEMM_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

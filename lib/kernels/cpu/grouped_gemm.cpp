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

/// A product of one expert, or a tile of it. Where rows of an operand are picked, it begins where row 0 of what they
/// are picked from does, in its first column.
template <class T, class Out>
struct Product {
  Gemm<T, Out> gemm;
  const std::int64_t* source = nullptr;  // of each row, where they are picked
  std::int64_t filled = 0;               // how many of the picked rows there are; zeros follow
  bool of_b = false;                     // whether b is the operand of which they are; else it is a
  std::int64_t work = 0;                 // of the largest tile of the whole product

  Matrix<const T>& picked() { return of_b ? gemm.b : gemm.a; }
  Product tile(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) const {
    Product tile{tile_of(gemm, row, rows, col, cols), source, filled, of_b, work};
    if (source && !gemm.transpose_a) {
      tile.source += row;
      tile.filled = std::clamp<std::int64_t>(filled - row, 0, rows);
    }
    return tile;
  }
};

/// Brings picked rows together in the scratch memory of the thread that multiplies them. Tiles of the same rows in
/// succession find them there.
template <class T>
class Picker {
 public:
  Picker(const CpuStream& stream, const PickedRows<T>& picked, std::int64_t most)
      : picked_(picked),
        scratch_(stream, most * static_cast<std::int64_t>(sizeof(T))),
        held_(static_cast<std::size_t>(stream.threads())) {}

  template <class Out>
  void bring(Product<T, Out>& tile, int thread) {
    Matrix<const T>& x = tile.picked();
    const Matrix<T> rows(reinterpret_cast<T*>(scratch_.of(thread)), x.rows, x.cols);
    const Held wanted{tile.source, x.data, x.rows};
    Held& held = held_[static_cast<std::size_t>(thread)];
    if (!(held == wanted)) copy(tile, rows);
    held = wanted;
    x = rows;
  }

 private:
  struct Held {
    const std::int64_t* source = nullptr;
    const T* column = nullptr;
    std::int64_t rows = 0;  // an expert without rows has the next one's begin
    bool operator==(const Held&) const = default;
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
  std::vector<Held> held_;  // by thread
};

/// Cuts the products into tiles and lets the threads take them, those of the dearest products first, so that experts of
/// very different sizes end together. No tile's sum is split, so the result does not depend on who takes what.
template <class T, class Out>
void run_all(const CpuStream& stream, std::vector<Product<T, Out>>& products, const PickedRows<T>& picked) {
  const auto busy = std::count_if(products.begin(), products.end(), [](const auto& p) { return p.gemm.c.size() > 0; });
  if (busy == 0) return;
  const std::int64_t wanted = stream.threads() > 1 ? (4 * stream.threads() + busy - 1) / busy : 1;
  std::vector<Product<T, Out>> tiles;
  std::int64_t max_rows = 0, max_cols = 0, most_picked = 0;
  for (Product<T, Out>& product : products) {
    const Matrix<Out>& c = product.gemm.c;
    const Tiling tiling = Tiling::of(c.rows, c.cols, wanted);
    const std::int64_t depth = product.gemm.transpose_a ? product.gemm.a.rows : product.gemm.a.cols;
    product.work = std::min(tiling.rows, c.rows) * std::min(tiling.cols, c.cols) * depth;
    const auto add = [&](std::int64_t row, std::int64_t col) {
      tiles.push_back(product.tile(row, std::min(tiling.rows, c.rows - row), col, std::min(tiling.cols, c.cols - col)));
      if (picked) most_picked = std::max(most_picked, tiles.back().picked().size());
    };
    if (product.of_b) {  // tiles that share columns of the operand that may be picked after each other
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
  std::stable_sort(tiles.begin(), tiles.end(), [](const auto& a, const auto& b) { return a.work > b.work; });
  const TileGemm multiply = TileGemm::make<T>(stream, max_rows, max_cols);
  Picker<T> picker(stream, picked, most_picked);
  parallel_tasks(stream.threads(), static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i, int thread) {
    Product<T, Out>& tile = tiles[static_cast<std::size_t>(i)];
    if (tile.source) picker.bring(tile, thread);
    multiply(tile.gemm, thread);
  });
}

/// oneDNN compiles a bf16 product for each count of rows, so it is given rows in multiples of the alignment.
template <class T>
bool takes_padding(const CpuStream& stream) {
  return std::is_same_v<T, bfloat16> && uses_native_bf16(stream);
}

template <class T>
void check_picked(const PickedRows<T>& picked, const Segments& segments) {
  if (!picked) return;
  require(std::ssize(picked.source) >= segments.total(), "{} sources for {} rows", picked.source.size(),
          segments.total());
  require_indices("PickedRows", "source", picked.source, std::numeric_limits<std::int64_t>::min(),
                  picked.x.rows * picked.divisor);
}

/// Segment e of x; of picked rows only the extents, and where they are picked from.
template <class T>
Matrix<const T> rows_of(const SegmentedMatrix<const T>& x, const PickedRows<T>& picked, const Segments& segments,
                        std::int64_t e) {
  if (!picked) return x.segment(segments, e);
  const auto i = static_cast<std::size_t>(e);
  return {picked.x.data, segments.begin[i + 1] - segments.begin[i], picked.x.cols, 0};
}

template <class T>
const std::int64_t* source_of(const PickedRows<T>& picked, const Segments& segments, std::int64_t e) {
  return picked ? picked.source.data() + segments.begin[static_cast<std::size_t>(e)] : nullptr;
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const GroupedGemm<T>& grouped) {
  const Segments& segments = grouped.segments;
  const PickedRows<T>& picked = grouped.picked;
  require(grouped.weights.size() == segments.rows.size(), "{} weights for {} segments", grouped.weights.size(),
          segments.rows.size());
  check_picked(picked, segments);
  std::vector<Product<T, T>> products;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const auto& weight = grouped.weights[static_cast<std::size_t>(e)];
    const Matrix<const T> x = rows_of(grouped.x, picked, segments, e);
    const Matrix<T> y = grouped.y.segment(segments, e);
    const std::int64_t in = grouped.transpose_weights ? weight.cols : weight.rows;
    const std::int64_t out = grouped.transpose_weights ? weight.rows : weight.cols;
    require(in == x.cols && out == y.cols, "expert {} takes {} to {} columns, its rows are {} and {} wide", e, in, out,
            x.cols, y.cols);
    const std::int64_t filled = segments.rows[static_cast<std::size_t>(e)];
    const std::int64_t rows = takes_padding<T>(stream) ? y.rows : filled;
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
  require(grouped.d_weights.size() == segments.rows.size(), "{} weight gradients for {} segments",
          grouped.d_weights.size(), segments.rows.size());
  require(!grouped.picked || !grouped.picked_dy, "a weight gradient of which rows of both operands are picked");
  const bool of_dy = static_cast<bool>(grouped.picked_dy);
  const PickedRows<T>& picked = of_dy ? grouped.picked_dy : grouped.picked;
  check_picked(picked, segments);
  std::vector<Product<T, Accumulator<T>>> products;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const auto& d_weight = grouped.d_weights[static_cast<std::size_t>(e)];
    const Matrix<const T> dy = rows_of(grouped.dy, grouped.picked_dy, segments, e);
    const Matrix<const T> x = rows_of(grouped.x, grouped.picked, segments, e);
    require(d_weight.rows == dy.cols && d_weight.cols == x.cols,
            "the gradient of expert {} is {} x {}, its rows are {} and {} wide", e, d_weight.rows, d_weight.cols,
            dy.cols, x.cols);
    const std::int64_t filled = segments.rows[static_cast<std::size_t>(e)];
    const std::int64_t rows = takes_padding<T>(stream) ? dy.rows : filled;
    if (rows == 0) continue;
    products.push_back({{.a = dy.rows_from(0, rows),
                         .b = x.rows_from(0, rows),
                         .c = d_weight,
                         .transpose_a = true,
                         .accumulate = true},
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

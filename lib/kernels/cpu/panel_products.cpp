#include "kernels/cpu/panel_products.h"

#include <algorithm>
#include <type_traits>

namespace lyceum {

namespace {

#ifdef __AVX512F__
constexpr std::int64_t vector_lanes = 16, tile_rows = 8;  // 16 sums in 32 registers
#else
constexpr std::int64_t vector_lanes = 8, tile_rows = 4;  // 8 sums in 16 registers
#endif
constexpr std::int64_t tile_vectors = 2, tile_cols = tile_vectors * vector_lanes;

using Vector [[gnu::vector_size(vector_lanes * sizeof(float)), gnu::aligned(alignof(float)), gnu::may_alias]] = float;

static_assert(PanelProducts<float>::lanes % vector_lanes == 0 && tile_cols % PanelProducts<float>::lanes == 0);
// Ensures that over_keys() and over_queries() read only scores that scores() has computed.
static_assert(tile_cols % tile_rows == 0 && panel_rows % tile_cols == 0);

Vector& vector_at(float* values) { return *reinterpret_cast<Vector*>(values); }
const Vector& vector_at(const float* values) { return *reinterpret_cast<const Vector*>(values); }

/// One tile of a product: c[r, ·] = Σ_k a(r, k) b[k, ·] over k in [first, last), or c[r, ·] += with `accumulate`.
/// a(r, k) is a[r · a_row + k · a_depth], so that a may be transposed. c has up to tile_rows x tile_cols elements.
struct Tile {
  const float* a;
  std::int64_t a_row, a_depth;  // strides, in elements
  Matrix<const float> b;
  Matrix<float> c;
  std::int64_t first, last;
  bool accumulate;
};

/// Computes a tile of `rows` rows and `vectors` · vector_lanes columns in registers.
template <int rows, int vectors>
void multiply(const Tile& tile) {
  Vector sums[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = tile.accumulate ? vector_at(tile.c.row(r) + v * vector_lanes) : Vector{};
    }
  }
  for (std::int64_t k = tile.first; k < tile.last; ++k) {
    const float* a = tile.a + k * tile.a_depth;
    const float* b = tile.b.row(k);
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) sums[r][v] += a[r * tile.a_row] * vector_at(b + v * vector_lanes);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) vector_at(tile.c.row(r) + v * vector_lanes) = sums[r][v];
  }
}

/// Calls multiply<wanted_rows, vectors>().
template <int rows = tile_rows>
void multiply(const Tile& tile, std::int64_t wanted_rows, std::int64_t vectors) {
  if constexpr (rows > 1) {
    if (wanted_rows < rows) return multiply<rows - 1>(tile, wanted_rows, vectors);
  }
  vectors == tile_vectors ? multiply<rows, tile_vectors>(tile) : multiply<rows, 1>(tile);
}

/// Computes rows [row, row + rows) and columns [col, c.cols) of c, the last rounded up to whole vectors, from terms
/// k in [first, last).
void multiply_rows(const Matrix<const float>& a, bool transpose_a, const Matrix<const float>& b, const Matrix<float>& c,
                   std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t first, std::int64_t last,
                   bool accumulate) {
  Tile tile{.a = transpose_a ? a.data + row : a.row(row),
            .a_row = transpose_a ? 1 : a.stride,
            .a_depth = transpose_a ? a.stride : 1,
            .b = b,
            .c = c,
            .first = first,
            .last = last,
            .accumulate = accumulate};
  for (; col < c.cols; col += tile_cols) {
    tile.b.data = b.data + col;
    tile.c.data = c.row(row) + col;
    const std::int64_t vectors = std::min((c.cols - col + vector_lanes - 1) / vector_lanes, tile_vectors);
    multiply(tile, rows, vectors);
  }
}

/// Returns fromᵀ as [from.cols, panel_rows] in `memory`; columns from from.rows on are 0.
Matrix<const float> transposed(const Matrix<const float>& from, float* memory) {
  const Matrix<float> to(memory, from.cols, from.rows, panel_rows);
  for (std::int64_t c = 0; c < from.cols; ++c) {
    float* row = to.row(c);
    for (std::int64_t r = 0; r < from.rows; ++r) row[r] = from.data[r * from.stride + c];
    std::fill(row + from.rows, row + panel_rows, 0.0f);
  }
  return to;
}

/// The first of the tile's rows that a key belongs to.
std::int64_t tile_of_key(std::int64_t key) { return key / tile_rows * tile_rows; }

/// A contiguous column.
template <class T>
Matrix<T> as_row(const Matrix<T>& column) {
  return {column.data, 1, column.rows};
}

}  // namespace

template <class E>
std::int64_t PanelProducts<E>::first_query(std::int64_t key) const {
  if (!in_place(queries_)) return 0;
  return std::min(std::max<std::int64_t>(tile_of_key(key) - before_, 0) / tile_cols * tile_cols, width(queries_));
}

template <class E>
void PanelProducts<E>::scores(const Matrix<E>& keys, const Matrix<E>& queries, const Matrix<float>& scores) const {
  if constexpr (std::is_same_v<E, float>) {
    if (in_place(queries_)) {
      const Matrix<const float> b = transposed(queries, scratch_);
      for (std::int64_t key = 0; key < keys.rows; key += tile_rows) {
        multiply_rows(keys, false, b, scores, key, std::min(tile_rows, keys.rows - key), first_query(key), 0, keys.cols,
                      false);
      }
      return;
    }
  }
  if (queries_ == 1) return gemm({.a = queries, .b = keys, .c = as_row(scores), .transpose_b = true});
  gemm({.a = keys, .b = queries, .c = scores, .transpose_b = true});
}

template <class E>
void PanelProducts<E>::over_keys(const Matrix<const E>& weights, const Matrix<E>& values, const Matrix<float>& out,
                                 bool accumulate) const {
  if constexpr (std::is_same_v<E, float>) {
    if (in_place(queries_)) {
      for (std::int64_t query = 0; query < out.rows; query += tile_rows) {
        const std::int64_t rows = std::min(tile_rows, out.rows - query);
        const std::int64_t seen = std::clamp<std::int64_t>(before_ + query + rows, 0, weights.rows);
        multiply_rows(weights, true, values, out, query, rows, 0, 0, seen, accumulate);
      }
      return;
    }
  }
  if (queries_ == 1) return gemm({.a = as_row(weights), .b = values, .c = out, .accumulate = accumulate});
  gemm({.a = weights, .b = values, .c = out, .transpose_a = true, .accumulate = accumulate});
}

template <class E>
void PanelProducts<E>::over_queries(const Matrix<const E>& weights, const Matrix<E>& rows,
                                    const Matrix<float>& out) const {
  if constexpr (std::is_same_v<E, float>) {
    if (in_place(queries_)) {
      for (std::int64_t key = 0; key < out.rows; key += tile_rows) {
        const std::int64_t first = std::max<std::int64_t>(key - before_, 0);
        multiply_rows(weights, false, rows, out, key, std::min(tile_rows, out.rows - key), 0, first, queries_, true);
      }
      return;
    }
  }
  gemm({.a = weights, .b = rows, .c = out, .accumulate = true});
}

template class PanelProducts<float>;
template class PanelProducts<bfloat16>;

}  // namespace lyceum

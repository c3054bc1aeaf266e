#pragma once

#include <cstdint>
#include <type_traits>

#include "core/round_up.h"
#include "core/tensor.h"
#include "kernels/cpu/tile_gemm.h"

namespace lyceum {

/// Queries of a panel, whose scores a thread holds at the same time. It is large enough for efficient products and
/// small enough that little work is done above the diagonal of the causal mask.
constexpr std::int64_t panel_rows = 64;

/// The matrix products of attention for one thread, between keys and a panel of at most panel_rows queries. Query r of
/// the panel sees keys [0, before + r]. Scores are [keys, width(queries)]: one row per key, one column per query.
///
/// float uses kernels that skip tiles of scores that no query sees, and read operands in place: packing them, as sgemm
/// does, is slow if one side has only 64 rows. Rows of all matrices must be at least padded(cols) elements apart, and
/// the elements between cols and padded(cols) may be overwritten. bfloat16, and float with fewer than lanes / 2
/// queries, use oneDNN.
template <class E>
class PanelProducts {
 public:
  static constexpr std::int64_t lanes = 16;
  static constexpr std::int64_t padded(std::int64_t cols) { return round_up(cols, lanes); }
  /// Returns the number of columns of scores for a number of queries. Columns from `queries` on are 0.
  static std::int64_t width(std::int64_t queries) { return in_place(queries) ? padded(queries) : queries; }
  /// Returns the number of floats of the scratch memory that queries are transposed into.
  static std::int64_t scratch(std::int64_t head_dim) { return head_dim * panel_rows; }

  /// `multiply` and `scratch`, of scratch(head_dim) floats, must outlive the object.
  PanelProducts(const TileGemm& multiply, int thread, std::int64_t before, std::int64_t queries, float* scratch)
      : multiply_(multiply), thread_(thread), before_(before), queries_(queries), scratch_(scratch) {}

  /// Returns the first column of a key's row of scores that scores() computes; the number of columns if there is none.
  std::int64_t first_query(std::int64_t key) const;

  /// scores = keys · queriesᵀ; keys [keys, dim], queries [queries, dim], scores [keys, width(queries)].
  void scores(const Matrix<E>& keys, const Matrix<E>& queries, const Matrix<float>& scores) const;
  /// out = weightsᵀ · values, or out += with `accumulate`; weights like scores, values [keys, dim], out [queries, dim].
  void over_keys(const Matrix<const E>& weights, const Matrix<E>& values, const Matrix<float>& out,
                 bool accumulate) const;
  /// out += weights · rows; weights like scores, rows [queries, dim], out [keys, dim].
  void over_queries(const Matrix<const E>& weights, const Matrix<E>& rows, const Matrix<float>& out) const;

 private:
  /// True if the kernels that read in place are used. With fewer queries, most columns of a tile would be wasted.
  static bool in_place(std::int64_t queries) { return std::is_same_v<E, float> && queries >= lanes / 2; }
  void gemm(const Gemm<E, float>& product) const { multiply_(product, thread_); }

  const TileGemm& multiply_;
  int thread_;
  std::int64_t before_, queries_;
  float* scratch_;
};

}  // namespace lyceum

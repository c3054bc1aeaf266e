#pragma once

#include <cstdint>
#include <type_traits>

#include "core/round_up.h"
#include "core/tensor.h"
#include "kernels/cpu/tile_gemm.h"

namespace lyceum {

/// Queries whose scores exist at a time: enough rows to keep a product busy, few enough that little of the work is
/// above the diagonal.
constexpr std::int64_t panel_rows = 64;

/// The products of attention by one thread, between keys and a panel of at most panel_rows queries, of which query r
/// sees keys [0, before + r]. Scores have a row per key and a column per query.
///
/// float: what no query sees is neither computed nor read, as closely as tiles allow, and operands are read in place;
/// to pack both, as sgemm does, takes long where one side has 64 rows. Rows of matrices are padded(their width)
/// elements apart or more, and what lies between may be overwritten. bfloat16, and a few queries alone, go to oneDNN.
template <class E>
class PanelProducts {
 public:
  static constexpr std::int64_t lanes = 16;
  static constexpr std::int64_t padded(std::int64_t cols) { return round_up(cols, lanes); }
  /// Columns of scores for that many queries; those beyond are zero.
  static std::int64_t width(std::int64_t queries) { return in_place(queries) ? padded(queries) : queries; }
  /// Elements of the memory that a panel's queries are transposed into.
  static std::int64_t scratch(std::int64_t head_dim) { return head_dim * panel_rows; }

  PanelProducts(const TileGemm& multiply, int thread, std::int64_t before, std::int64_t queries, float* scratch)
      : multiply_(multiply), thread_(thread), before_(before), queries_(queries), scratch_(scratch) {}

  /// The first query whose score with a key exists; their number where none does.
  std::int64_t first_query(std::int64_t key) const;

  /// scores = keys · queriesᵀ; keys [keys, dim], queries [queries, dim], scores [keys, width].
  void scores(const Matrix<E>& keys, const Matrix<E>& queries, const Matrix<float>& scores) const;
  /// out [queries, dim] = weightsᵀ · values, or is added to; weights as scores, values [keys, dim].
  void over_keys(const Matrix<const E>& weights, const Matrix<E>& values, const Matrix<float>& out,
                 bool accumulate) const;
  /// out [keys, dim] += weights · rows; rows [queries, dim].
  void over_queries(const Matrix<const E>& weights, const Matrix<E>& rows, const Matrix<float>& out) const;

 private:
  /// For fewer queries most columns of a tile would be computed for nothing.
  static bool in_place(std::int64_t queries) { return std::is_same_v<E, float> && queries >= lanes / 2; }
  void gemm(const Gemm<E, float>& product) const { multiply_(product, thread_); }

  const TileGemm& multiply_;
  int thread_;
  std::int64_t before_, queries_;
  float* scratch_;
};

}  // namespace lyceum

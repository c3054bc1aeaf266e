#pragma once

#include "core/stream.h"
#include "kernels/grouped_gemm.h"
#include "kernels/permute.h"

namespace lyceum {

/// The mapping between tokens and the rows of experts, which are copies of tokens: one row per (token, choice) pair.
struct TokenRows {
  Tensor pair_of_row;      // i64 [rows]: token · top_k + choice, −1 for padding
  Tensor row_of_pair;      // i64 [tokens · top_k]: inverse of pair_of_row; −1 for a choice without a row
  std::int64_t top_k = 0;  // 0: rows are not copies but x itself

  /// Returns the number of rows: of the copies of x, or of x if there are no copies.
  std::int64_t rows(const Tensor& x) const { return top_k ? pair_of_row.size() : x.shape()[0]; }
  /// Returns a description of the rows by their tokens x, for products that read them in place; empty if there are no
  /// copies.
  template <class T>
  PickedRows<T> picked(const Tensor& x) const {
    if (top_k == 0) return {};
    return {.x = x.matrix<T>(), .source = pair_of_row.span<const std::int64_t>(), .divisor = top_k};
  }
  /// Returns for each token the sum of its rows, each multiplied by its gate if `gates` [tokens, top_k] is defined, in
  /// the order of choices. rows [rows, width], result [tokens, width]. Without gates this maps the gradient of the rows
  /// to the gradient of x. Returns `rows` if there are no copies.
  Tensor sums(const Stream& stream, const Tensor& rows, const Tensor& gates = {}) const;
};

}  // namespace lyceum

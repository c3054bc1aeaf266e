#pragma once

#include "core/stream.h"
#include "kernels/grouped_gemm.h"
#include "kernels/permute.h"

namespace lyceum {

/// Which token each row of experts is a copy of.
struct TokenRows {
  Tensor pair_of_row;      // i64 [rows]: token · top_k + choice, −1 for padding
  Tensor row_of_pair;      // i64 [tokens · top_k]
  std::int64_t top_k = 0;  // 0: rows are no copies

  /// How many rows x represents.
  std::int64_t rows(const Tensor& x) const { return top_k ? pair_of_row.size() : x.shape()[0]; }
  /// The rows that are copies of tokens x, if they are.
  template <class T>
  PickedRows<T> picked(const Tensor& x) const {
    if (top_k == 0) return {};
    return {.x = x.matrix<T>(), .source = pair_of_row.span<const std::int64_t>(), .divisor = top_k};
  }
  /// The sum over the copies of each token, in the order of its choices, of `gates` [tokens, top_k] times the rows if
  /// they are given. [rows, width] → [tokens, width]. Without gates it is the gradient of x from that of its rows.
  Tensor sums(const Stream& stream, const Tensor& rows, const Tensor& gates = {}) const;
};

}  // namespace lyceum

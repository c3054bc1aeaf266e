#pragma once

#include "kernels/attention.h"

namespace lyceum {

/// Throws an Error unless `matrix` is [rows, cols]. `name` is used in the message.
template <class T>
void require_size(const char* name, const Matrix<T>& matrix, std::int64_t rows, std::int64_t cols) {
  require(matrix.rows == rows && matrix.cols == cols, "attention: {} is {} x {}, but must be {} x {}", name,
          matrix.rows, matrix.cols, rows, cols);
}

/// Throws an Error unless the matrices of an attention, forward or backward, have the extents that its shape requires.
template <class Attention>
void require_fitting(const Attention& attention) {
  const auto& [sequences, query_len, key_len, heads, kv_heads, head_dim, window, value_dim] = attention.shape;
  const std::int64_t value_cols = attention.shape.value_cols();
  require(attention.scale > 0, "attention: the scale of scores is {}, but must be positive", attention.scale);
  require(kv_heads > 0 && heads % kv_heads == 0, "attention: {} query heads are not a multiple of {} key heads", heads,
          kv_heads);
  require(query_len <= key_len, "attention: {} queries and only {} keys: the keys must include those of the queries",
          query_len, key_len);
  require(value_dim >= 0, "attention: heads of values have {} columns, but the number must not be negative", value_dim);
  require(window >= 0, "attention: the window is {} keys, but must not be negative", window);
  require(attention.first_keys.empty() || std::ssize(attention.first_keys) == sequences * query_len,
          "attention: there are {} first keys for {} queries", attention.first_keys.size(), sequences * query_len);
  require_size("q", attention.q, sequences * query_len, heads * head_dim);
  require_size("k", attention.k, sequences * key_len, kv_heads * head_dim);
  require_size("v", attention.v, sequences * key_len, kv_heads * value_cols);
  if constexpr (requires { attention.out; }) {
    require_size("out", attention.out, sequences * query_len, heads * value_cols);
  }
  if constexpr (requires { attention.log_sum_exp; }) {
    require_size("log_sum_exp", attention.log_sum_exp, sequences * query_len, heads);
  } else {
    require_size("log_rest", attention.log_rest, sequences * query_len, heads);
  }
  if constexpr (requires { attention.largest; }) {
    if (attention.largest.data) require_size("largest", attention.largest, sequences * query_len, heads);
  }
  if constexpr (requires { attention.d_out; }) {
    require_size("d_out", attention.d_out, sequences * query_len, heads * value_cols);
    require_size("dq", attention.dq, sequences * query_len, heads * head_dim);
    require_size("dk", attention.dk, sequences * key_len, kv_heads * head_dim);
    require_size("dv", attention.dv, sequences * key_len, kv_heads * value_cols);
  }
}

/// Throws an Error if sequences have more than 2³⁰ keys, or all sequences together more than 2³⁰ heads. The CUDA
/// kernels use 32-bit indices, also for the rows of the last tile that are beyond the end of a sequence.
inline void require_countable(const AttentionShape& shape) {
  constexpr std::int64_t most = 1 << 30;
  require(shape.key_len <= most, "attention: sequences of {} tokens are too long, at most {} are supported",
          shape.key_len, most);
  const std::int64_t heads = shape.sequences * shape.heads;
  require(heads <= most, "attention: {} heads in all sequences are too many, at most {} are supported", heads, most);
}

}  // namespace lyceum

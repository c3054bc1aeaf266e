#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/cuda/host_device.h"
#include "kernels/instances.h"

namespace lyceum {

/// The division of an attention's matrices into sequences (rows) and heads (columns). Queries are the last query_len
/// of key_len positions: query i of a sequence is at position p = key_len − query_len + i and sees keys up to p. With a
/// window w > 0 it sees only the last w of these, from key max(0, p − w + 1) on. Query head h uses key head
/// h · kv_heads / heads. Kernels skip tiles of keys that no query sees, so their work is linear in the window.
struct AttentionShape {
  std::int64_t sequences, query_len, key_len;
  std::int64_t heads, kv_heads, head_dim;  // head_dim: columns of a head of queries and keys
  std::int64_t window = 0;                 // keys that a query sees at most, its own included; 0: all
  std::int64_t value_dim = 0;              // columns of a head of values and results; 0: head_dim

  /// Returns the number of columns of a head of values and results.
  LYCEUM_HOST_DEVICE std::int64_t value_cols() const { return value_dim > 0 ? value_dim : head_dim; }
  /// Returns the larger of the two widths of a head.
  LYCEUM_HOST_DEVICE std::int64_t widest() const { return value_cols() > head_dim ? value_cols() : head_dim; }
};

/// [sequences · query_len]: for each query, the index in its sequence of the first key that it sees, for sequences that
/// consist of several documents: the position at which the query's document begins. Never descending within a sequence,
/// and at most the query's own position. Empty: all queries see their sequence from key 0 on. With a window, a query
/// sees the keys that both allow. Kernels skip tiles of keys that no query sees.
using FirstKeys = std::span<const std::int32_t>;

/// out = softmax(scale · q·kᵀ, causal) · v for each sequence and head. Computed for one panel of queries after the
/// other, so that a thread needs memory for the scores of one panel only.
template <class T>
struct AttentionForward {
  AttentionShape shape;
  Matrix<const T> q;                   // [sequences · query_len, heads · head_dim]
  Matrix<const T> k;                   // [sequences · key_len, kv_heads · head_dim]
  Matrix<const T> v;                   // [sequences · key_len, kv_heads · value_cols()]
  Matrix<T> out;                       // [sequences · query_len, heads · value_cols()]
  Matrix<Accumulator<T>> log_sum_exp;  // [sequences · query_len, heads], kept for backward
  double scale;
  FirstKeys first_keys = {};
  /// [sequences · query_len, heads]: receives the largest scaled score of each query, without NaNs; or empty
  Matrix<Accumulator<T>> largest = {};
};

/// Gradients of AttentionForward by q, k and v. Recomputes the scores panel by panel.
template <class T>
struct AttentionBackward {
  AttentionShape shape;
  Matrix<const T> q, k, v, out, d_out;       // as in AttentionForward; d_out like out
  Matrix<const Accumulator<T>> log_sum_exp;  // the result of AttentionForward, or with sinks of ApplySinks
  Matrix<T> dq, dk, dv;                      // like q, k, v
  double scale;
  FirstKeys first_keys = {};
};

template <class T>
void run(const CpuStream& stream, const AttentionForward<T>& attention);
template <class T>
void run(const CpuStream& stream, const AttentionBackward<T>& attention);
template <class T>
void run(const CudaStream& stream, const AttentionForward<T>& attention);
template <class T>
void run(const CudaStream& stream, const AttentionBackward<T>& attention);

#define LYCEUM_ATTENTION_KERNELS(INSTANCE)  \
  LYCEUM_FLOATS(INSTANCE, AttentionForward) \
  LYCEUM_FLOATS(INSTANCE, AttentionBackward)

}  // namespace lyceum

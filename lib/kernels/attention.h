#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// How rows and columns of an attention's matrices are to be read. Query head h uses key head h · kv_heads / heads.
struct AttentionShape {
  std::int64_t sequences, query_len, key_len;  // queries are at the last query_len of key_len positions
  std::int64_t heads, kv_heads, head_dim;
};

/// [sequences · query_len]: where a sequence is made of documents that do not see each other, the first key of its
/// sequence that each query sees, which is where the query's document begins; at most the query's own, and never less
/// than that of the query before. Empty: 0 for all. Keys that no query of a tile sees cost no work.
using FirstKeys = std::span<const std::int32_t>;

/// out = softmax(scale · q·kᵀ, causal) · v for each sequence and head; blocked over queries, so that no more than a
/// panel of scores a thread exists at a time.
template <class T>
struct AttentionForward {
  AttentionShape shape;
  Matrix<const T> q;                   // [sequences · query_len, heads · head_dim]
  Matrix<const T> k, v;                // [sequences · key_len, kv_heads · head_dim]
  Matrix<T> out;                       // like q
  Matrix<Accumulator<T>> log_sum_exp;  // [sequences · query_len, heads], kept for backward
  double scale;
  FirstKeys first_keys = {};
};

/// Gradients of AttentionForward; recomputes the scores panel by panel.
template <class T>
struct AttentionBackward {
  AttentionShape shape;
  Matrix<const T> q, k, v, out, d_out;
  Matrix<const Accumulator<T>> log_sum_exp;
  Matrix<T> dq, dk, dv;
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

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/cuda/host_device.h"
#include "kernels/instances.h"

// RMSNorm of queries and keys before attention. The input has the columns q | k | v of each token's projections.
// Columns that are normalised together form a group: either each head is a group [Qwen3], or all queries and all keys
// of a token are two groups [OLMoE]. If tensor ranks divide the heads, a group of all heads extends over all of them;
// the caller then all-reduces the sums between QkSquares and QkNormForward, and between QkDots and QkNormBackward.
namespace lyceum {

/// The columns of a row, and their division into groups.
struct QkNormShape {
  std::int64_t heads, kv_heads, head_dim;  // on this rank
  bool by_head;                            // true: a group per head; false: two groups, queries and keys
  std::int64_t ranks = 1;                  // number of tensor ranks; each has the same number of heads

  /// Return numbers of columns on this rank: of queries, of keys, of both, and of a whole row with values.
  LYCEUM_HOST_DEVICE std::int64_t queries() const { return heads * head_dim; }
  LYCEUM_HOST_DEVICE std::int64_t keys() const { return kv_heads * head_dim; }
  LYCEUM_HOST_DEVICE std::int64_t normed() const { return queries() + keys(); }
  LYCEUM_HOST_DEVICE std::int64_t width() const { return normed() + keys(); }
  /// Returns the number of groups of a token. Groups of queries precede groups of keys.
  LYCEUM_HOST_DEVICE std::int64_t groups() const { return by_head ? heads + kv_heads : 2; }
  /// Returns the number of columns of a group on all ranks together.
  LYCEUM_HOST_DEVICE std::int64_t elements(std::int64_t group) const {
    if (by_head) return head_dim;
    return ranks * (group < 1 ? queries() : keys());
  }
  /// Return the number of heads of a group on this rank, the first of these heads, and the group of a head. Heads are
  /// numbered through: key heads follow query heads.
  LYCEUM_HOST_DEVICE std::int64_t heads_in(std::int64_t group) const {
    if (by_head) return 1;
    return group < 1 ? heads : kv_heads;
  }
  LYCEUM_HOST_DEVICE std::int64_t first_head(std::int64_t group) const { return by_head || group < 1 ? group : heads; }
  LYCEUM_HOST_DEVICE std::int64_t group_of(std::int64_t head) const { return by_head ? head : head >= heads; }
  /// Returns the offset of a head's first weight in q_weight, or in k_weight for a key head.
  LYCEUM_HOST_DEVICE std::int64_t first_weight(std::int64_t head) const {
    if (by_head) return 0;
    return (head < heads ? head : head - heads) * head_dim;
  }
  /// Return the lengths of q_weight and k_weight. With by_head, all heads share the weights of one head.
  LYCEUM_HOST_DEVICE std::int64_t query_weights() const { return by_head ? head_dim : queries(); }
  LYCEUM_HOST_DEVICE std::int64_t key_weights() const { return by_head ? head_dim : keys(); }
};

/// sums[t, g] = Σ x² over the columns of group g on this rank.
template <class T>
struct QkSquares {
  QkNormShape shape;
  Matrix<const T> x;            // [tokens, width]
  Matrix<Accumulator<T>> sums;  // [tokens, groups]
};

/// y = x · rsqrt(squares / elements + eps) · weight, group by group. Columns of values are copied.
template <class T>
struct QkNormForward {
  QkNormShape shape;
  Matrix<const T> x;                      // [tokens, width]
  std::span<const T> q_weight, k_weight;  // [query_weights], [key_weights]
  Matrix<const Accumulator<T>> squares;   // [tokens, groups]: QkSquares::sums, added up over the ranks
  Matrix<T> y;                            // [tokens, width]
  Matrix<Accumulator<T>> inverse_rms;     // [tokens, groups], kept for backward
  double eps;
};

/// sums[t, g] = Σ dy · weight · x over the columns of group g on this rank.
template <class T>
struct QkDots {
  QkNormShape shape;
  Matrix<const T> x, dy;  // [tokens, width]
  std::span<const T> q_weight, k_weight;
  Matrix<Accumulator<T>> sums;  // [tokens, groups]
};

/// Gradient of QkNormForward by x. Columns of values are copied from dy.
template <class T>
struct QkNormBackward {
  QkNormShape shape;
  Matrix<const T> x, dy;  // [tokens, width]
  std::span<const T> q_weight, k_weight;
  Matrix<const Accumulator<T>> inverse_rms, dots;  // [tokens, groups]; dots: QkDots::sums, added up over the ranks
  Matrix<T> dx;                                    // [tokens, width]
};

/// d_weight += Σ dy · x · inverse_rms, over this rank's tokens and over its heads that share a weight. The order of
/// summation does not depend on the number of threads.
template <class T>
struct QkNormWeightGrad {
  QkNormShape shape;
  bool of_keys;                              // true: d_weight is that of k_weight; false: of q_weight
  Matrix<const T> x, dy;                     // [tokens, width]
  Matrix<const Accumulator<T>> inverse_rms;  // [tokens, groups]
  std::span<Accumulator<T>> d_weight;        // [query_weights] or [key_weights]
};

template <class T>
void run(const CpuStream& stream, const QkSquares<T>& norm);
template <class T>
void run(const CpuStream& stream, const QkNormForward<T>& norm);
template <class T>
void run(const CpuStream& stream, const QkDots<T>& norm);
template <class T>
void run(const CpuStream& stream, const QkNormBackward<T>& norm);
template <class T>
void run(const CpuStream& stream, const QkNormWeightGrad<T>& norm);

template <class T>
void run(const CudaStream& stream, const QkSquares<T>& norm);
template <class T>
void run(const CudaStream& stream, const QkNormForward<T>& norm);
template <class T>
void run(const CudaStream& stream, const QkDots<T>& norm);
template <class T>
void run(const CudaStream& stream, const QkNormBackward<T>& norm);
template <class T>
void run(const CudaStream& stream, const QkNormWeightGrad<T>& norm);

#define LYCEUM_QK_NORM_KERNELS(INSTANCE)  \
  LYCEUM_FLOATS(INSTANCE, QkSquares)      \
  LYCEUM_FLOATS(INSTANCE, QkNormForward)  \
  LYCEUM_FLOATS(INSTANCE, QkDots)         \
  LYCEUM_FLOATS(INSTANCE, QkNormBackward) \
  LYCEUM_FLOATS(INSTANCE, QkNormWeightGrad)

}  // namespace lyceum

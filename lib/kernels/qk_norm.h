#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/cuda/host_device.h"
#include "kernels/instances.h"

// RMSNorm of queries and keys before attention, in the columns q | k | v of the projections of a token. A group of
// columns is normed together: a head [Qwen3], or all queries or all keys of a token [OLMoE].
namespace lyceum {

struct QkNormShape {
  std::int64_t heads, kv_heads, head_dim;  // of this rank
  bool by_head;
  std::int64_t ranks = 1;  // that share the heads alike: a group of all heads is on all of them

  LYCEUM_HOST_DEVICE std::int64_t queries() const { return heads * head_dim; }
  LYCEUM_HOST_DEVICE std::int64_t keys() const { return kv_heads * head_dim; }
  LYCEUM_HOST_DEVICE std::int64_t normed() const { return queries() + keys(); }
  LYCEUM_HOST_DEVICE std::int64_t width() const { return normed() + keys(); }
  /// Of a token: first those of queries, then those of keys.
  LYCEUM_HOST_DEVICE std::int64_t groups() const { return by_head ? heads + kv_heads : 2; }
  /// Elements of a group, on all ranks.
  LYCEUM_HOST_DEVICE std::int64_t elements(std::int64_t group) const {
    return by_head ? head_dim : ranks * (group < 1 ? queries() : keys());
  }
  /// Heads of a group that are on this rank, and the first of them; heads of keys follow those of queries.
  LYCEUM_HOST_DEVICE std::int64_t heads_in(std::int64_t group) const {
    return by_head ? 1 : (group < 1 ? heads : kv_heads);
  }
  LYCEUM_HOST_DEVICE std::int64_t first_head(std::int64_t group) const { return by_head || group < 1 ? group : heads; }
  LYCEUM_HOST_DEVICE std::int64_t group_of(std::int64_t head) const { return by_head ? head : head >= heads; }
  /// Where the weights of a head begin among those of all queries, or of all keys.
  LYCEUM_HOST_DEVICE std::int64_t first_weight(std::int64_t head) const {
    return by_head ? 0 : (head < heads ? head : head - heads) * head_dim;
  }
  LYCEUM_HOST_DEVICE std::int64_t query_weights() const { return by_head ? head_dim : queries(); }
  LYCEUM_HOST_DEVICE std::int64_t key_weights() const { return by_head ? head_dim : keys(); }
};

/// sums[t, g] = Σ x² over the columns of group g that are here.
template <class T>
struct QkSquares {
  QkNormShape shape;
  Matrix<const T> x;            // [tokens, width]
  Matrix<Accumulator<T>> sums;  // [tokens, groups]
};

/// y = x · rsqrt(squares / elements + eps) · weight, group by group; values stay as they are.
template <class T>
struct QkNormForward {
  QkNormShape shape;
  Matrix<const T> x;                      // [tokens, width]
  std::span<const T> q_weight, k_weight;  // [query_weights], [key_weights]
  Matrix<const Accumulator<T>> squares;   // [tokens, groups], over the columns on all ranks
  Matrix<T> y;                            // [tokens, width]
  Matrix<Accumulator<T>> inverse_rms;     // [tokens, groups], kept for backward
  double eps;
};

/// sums[t, g] = Σ dy · weight · x over the columns of group g that are here.
template <class T>
struct QkDots {
  QkNormShape shape;
  Matrix<const T> x, dy;  // [tokens, width]
  std::span<const T> q_weight, k_weight;
  Matrix<Accumulator<T>> sums;  // [tokens, groups]
};

/// dx of QkNormForward.
template <class T>
struct QkNormBackward {
  QkNormShape shape;
  Matrix<const T> x, dy;  // [tokens, width]
  std::span<const T> q_weight, k_weight;
  Matrix<const Accumulator<T>> inverse_rms, dots;  // [tokens, groups]; dots over the columns on all ranks
  Matrix<T> dx;                                    // [tokens, width]
};

/// d_weight += Σ dy · x · inverse_rms over tokens, and over the heads that share a weight, of the queries or of the
/// keys; in a fixed order whatever the number of threads.
template <class T>
struct QkNormWeightGrad {
  QkNormShape shape;
  bool of_keys;
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

#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/cross_entropy.h"
#include "kernels/instances.h"

namespace lyceum {

// Each sample is in a batch twice: sequences 2i and 2i + 1 of seq_len tokens are its copies. Token t of both copies is
// pair i · seq_len + t. Both have the same target. With p = softmax of the logits of the first copy, q = softmax of
// those of the second one and D = log p − log q, a pair has the symmetric divergence of THOR [Zuo et al. 2022]:
//
//   ½ (KL(p‖q) + KL(q‖p)) = ½ Σ_v (p_v − q_v) D_v

/// Computes the sums of all pairs over the words of a slice of the vocabulary. Both are 0 for pairs without a target.
template <class T>
struct PairDivergence {
  Matrix<const T> logits;                       // [tokens, words of this slice]
  std::span<const std::int32_t> targets;        // [tokens]: no_target, or any other number
  std::span<const Accumulator<T>> log_sum_exp;  // [tokens]: of the whole vocabulary
  std::int64_t seq_len;
  Matrix<Accumulator<T>> sums;  // [2, tokens / 2]: ½ Σ (p − q) D and Σ p D
};

/// CrossEntropyBackward with the gradient of pair_scale[0] · Σ divergence in addition. With KL(q‖p) = 2 · sums[0] −
/// sums[1], the divergence of a pair adds
///   ½ (p (D − KL(p‖q)) + p − q) to d_logits of the first copy and
///   ½ (q (−D − KL(q‖p)) + q − p) to d_logits of the second one.
template <class T>
struct PairedCrossEntropyBackward {
  // The members up to z_scale are those of CrossEntropyBackward.
  Matrix<const T> logits;
  std::span<const std::int32_t> targets;
  std::span<const Accumulator<T>> log_sum_exp, scale;
  Matrix<T> d_logits;  // may be logits
  std::int64_t first, vocab;
  std::span<const Accumulator<T>> z_scale;
  std::int64_t seq_len;                        // as in PairDivergence
  Matrix<const Accumulator<T>> sums;           // [2, tokens / 2]: of PairDivergence, over the whole vocabulary
  std::span<const Accumulator<T>> pair_scale;  // [1], in memory of the stream's device
};

template <class T>
void run(const CpuStream& stream, const PairDivergence<T>& divergence);
template <class T>
void run(const CpuStream& stream, const PairedCrossEntropyBackward<T>& loss);

template <class T>
void run(const CudaStream& stream, const PairDivergence<T>& divergence);
template <class T>
void run(const CudaStream& stream, const PairedCrossEntropyBackward<T>& loss);

#define LYCEUM_PAIR_DIVERGENCE_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, PairDivergence)        \
  LYCEUM_FLOATS(INSTANCE, PairedCrossEntropyBackward)

}  // namespace lyceum

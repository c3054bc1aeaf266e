#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// The target of a token that is not trained on: its loss and the gradient of its logits are 0.
constexpr std::int32_t no_target = -1;

/// loss[t] = log Σ_v exp(logits[t, v]) − logits[t, targets[t]], in nats.
template <class T>
struct CrossEntropyForward {
  Matrix<const T> logits;                 // [tokens, vocab]
  std::span<const std::int32_t> targets;  // [tokens]: in [0, vocab), or no_target
  std::span<Accumulator<T>> loss;         // [tokens]
  std::span<Accumulator<T>> log_sum_exp;  // [tokens], kept for backward
  /// [tokens]: log_sum_exp², or 0 for tokens without a target, for the z-loss; or empty
  std::span<Accumulator<T>> squares = {};
  std::span<Accumulator<T>> largest = {};  // [tokens]: largest logit, without NaNs; or empty
};

/// First step of a cross entropy whose vocabulary is divided among tensor ranks: computes the contribution of one
/// rank's slice. statistics[t] = (m, Σ_v exp(logits[t, v] − m), logit of the target), where m is the largest logit of
/// the slice. The third number is 0 if the target is in another slice. The sum is 0 if all logits of the slice are −∞.
template <class T>
struct CrossEntropyPart {
  Matrix<const T> logits;                 // [tokens, words of this slice]
  std::span<const std::int32_t> targets;  // [tokens]: in [0, vocab), or no_target
  std::int64_t first, vocab;              // word of the first column; size of the whole vocabulary
  Matrix<Accumulator<T>> statistics;      // [tokens, 3]
};

/// Second step: computes the results of CrossEntropyForward from the statistics of all slices, added up in the order of
/// the slices. A is float or double.
template <class A>
struct CrossEntropyJoin {
  Matrix<const A> statistics;  // [slices · tokens, 3]: all tokens of the first slice, then of the second, and so on
  std::span<const std::int32_t> targets;    // [tokens], as in CrossEntropyPart
  std::span<A> loss;                        // [tokens]
  std::span<A> log_sum_exp;                 // [tokens]
  std::span<A> squares = {}, largest = {};  // [tokens], as in CrossEntropyForward; or empty
};

/// d_logits = scale[0] · (softmax(logits) − onehot(targets)) + z_scale[0] · 2 · log_sum_exp · softmax(logits), the
/// gradient of scale[0] · Σ loss + z_scale[0] · Σ squares, or 0 for tokens without a target. d_logits may be logits.
/// The columns may be a slice of the vocabulary; log_sum_exp is then that of the whole vocabulary.
template <class T>
struct CrossEntropyBackward {
  Matrix<const T> logits;                        // [tokens, words of this slice]
  std::span<const std::int32_t> targets;         // [tokens]: in the whole vocabulary, or no_target
  std::span<const Accumulator<T>> log_sum_exp;   // [tokens]
  std::span<const Accumulator<T>> scale;         // [1], in memory of the stream's device
  Matrix<T> d_logits;                            // like logits
  std::int64_t first = 0;                        // word of the first column
  std::int64_t vocab = -1;                       // size of the whole vocabulary; −1: first + columns
  std::span<const Accumulator<T>> z_scale = {};  // [1], in memory of the stream's device; empty: 0
};

template <class T>
void run(const CpuStream& stream, const CrossEntropyForward<T>& loss);
template <class T>
void run(const CpuStream& stream, const CrossEntropyPart<T>& part);
template <class A>
void run(const CpuStream& stream, const CrossEntropyJoin<A>& join);
template <class T>
void run(const CpuStream& stream, const CrossEntropyBackward<T>& loss);

template <class T>
void run(const CudaStream& stream, const CrossEntropyForward<T>& loss);
template <class T>
void run(const CudaStream& stream, const CrossEntropyPart<T>& part);
template <class A>
void run(const CudaStream& stream, const CrossEntropyJoin<A>& join);
template <class T>
void run(const CudaStream& stream, const CrossEntropyBackward<T>& loss);

#define LYCEUM_CROSS_ENTROPY_KERNELS(INSTANCE)    \
  LYCEUM_FLOATS(INSTANCE, CrossEntropyForward)    \
  LYCEUM_FLOATS(INSTANCE, CrossEntropyPart)       \
  LYCEUM_ACCUMULATORS(INSTANCE, CrossEntropyJoin) \
  LYCEUM_FLOATS(INSTANCE, CrossEntropyBackward)

}  // namespace lyceum

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// The target of a token whose prediction does not count: its loss and its gradient are 0.
constexpr std::int32_t no_target = -1;

/// loss[t] = log Σ_v exp(logits[t, v]) − logits[t, targets[t]], in nats.
template <class T>
struct CrossEntropyForward {
  Matrix<const T> logits;                 // [tokens, vocab]
  std::span<const std::int32_t> targets;  // [tokens], or no_target
  std::span<Accumulator<T>> loss;         // [tokens]
  std::span<Accumulator<T>> log_sum_exp;  // [tokens], kept for backward
};

/// What one part of the vocabulary knows of each token's loss: statistics[t] = (m, Σ_v exp(logits[t, v] − m), logit of
/// the target), m the largest logit of the part; the last is 0 where another part has the target. A part without a
/// number above −∞ has the sum 0.
template <class T>
struct CrossEntropyPart {
  Matrix<const T> logits;                 // [tokens, words of this part]
  std::span<const std::int32_t> targets;  // [tokens], in the whole vocabulary, or no_target
  std::int64_t first, vocab;              // word of the first column; words of all parts
  Matrix<Accumulator<T>> statistics;      // [tokens, 3]
};

/// CrossEntropyForward's results from the statistics of all parts, summed in their order. A is float or double.
template <class A>
struct CrossEntropyJoin {
  Matrix<const A> statistics;             // [parts · tokens, 3], part after part
  std::span<const std::int32_t> targets;  // [tokens], those of the parts
  std::span<A> loss;                      // [tokens]
  std::span<A> log_sum_exp;               // [tokens]
};

/// d_logits = scale[0] · (softmax(logits) − onehot(targets)), 0 of tokens without a target; may overwrite logits. The
/// logits may be those of a part of the vocabulary, log_sum_exp is that of all parts then.
template <class T>
struct CrossEntropyBackward {
  Matrix<const T> logits;
  std::span<const std::int32_t> targets;
  std::span<const Accumulator<T>> log_sum_exp;
  std::span<const Accumulator<T>> scale;  // [1], where the kernel runs
  Matrix<T> d_logits;
  std::int64_t first = 0;   // word of the first column
  std::int64_t vocab = -1;  // words of all parts; −1: first + columns
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

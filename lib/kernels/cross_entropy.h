#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// loss[t] = log Σ_v exp(logits[t, v]) − logits[t, targets[t]], in nats.
template <class T>
struct CrossEntropyForward {
  Matrix<const T> logits;                 // [tokens, vocab]
  std::span<const std::int32_t> targets;  // [tokens]
  std::span<Accumulator<T>> loss;         // [tokens]
  std::span<Accumulator<T>> log_sum_exp;  // [tokens], kept for backward
};

/// d_logits = scale · (softmax(logits) − onehot(targets)); may overwrite logits.
template <class T>
struct CrossEntropyBackward {
  Matrix<const T> logits;
  std::span<const std::int32_t> targets;
  std::span<const Accumulator<T>> log_sum_exp;
  double scale;
  Matrix<T> d_logits;
};

template <class T>
void run(const CpuStream& stream, const CrossEntropyForward<T>& loss);
template <class T>
void run(const CpuStream& stream, const CrossEntropyBackward<T>& loss);

}  // namespace lyceum

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Divides each row of gates by its sum, which is kept for backward. [GShard: gates over the chosen two]
template <class A>
struct NormalizeGates {
  Matrix<A> gates;    // [tokens, k], in place
  std::span<A> sums;  // [tokens]
};

/// d_scores = d_gates put back where the choices came from, zero elsewhere; through the normalisation where `sums` is
/// not empty.
template <class A>
struct SelectionBackward {
  Matrix<const std::int32_t> index;  // [tokens, k]
  Matrix<const A> gates, d_gates;    // [tokens, k]
  std::span<const A> sums;           // [tokens] or empty
  Matrix<A> d_scores;                // [tokens, experts]
};

/// What a balance loss needs of each sequence s of seq_len tokens. The rows may be some of all tokens: those from token
/// `first` on; each sequence then gets what they add to it, and sums over the ranks that hold the others are due.
template <class A>
struct SequenceLoad {
  Matrix<const std::int32_t> index;  // [tokens, k]
  Matrix<const A> scores;            // [tokens, experts]
  std::int64_t seq_len;
  Matrix<A> count;             // [sequences, experts]: choices that fell on each expert
  Matrix<A> mean_probability;  // [sequences, experts]: sum of the scores over seq_len
  std::int64_t first = 0;
};

/// d_scores[t, i] = slope[(first + t) / seq_len, i].
template <class A>
struct SpreadOverSequence {
  Matrix<const A> slope;  // [sequences, experts]
  std::int64_t seq_len;
  Matrix<A> d_scores;  // [tokens, experts]
  std::int64_t first = 0;
};

template <class A>
void run(const CpuStream& stream, const NormalizeGates<A>& normalize);
template <class A>
void run(const CpuStream& stream, const SelectionBackward<A>& selection);
template <class A>
void run(const CpuStream& stream, const SequenceLoad<A>& load);
template <class A>
void run(const CpuStream& stream, const SpreadOverSequence<A>& spread);

template <class A>
void run(const CudaStream& stream, const NormalizeGates<A>& normalize);
template <class A>
void run(const CudaStream& stream, const SelectionBackward<A>& selection);
template <class A>
void run(const CudaStream& stream, const SequenceLoad<A>& load);
template <class A>
void run(const CudaStream& stream, const SpreadOverSequence<A>& spread);

}  // namespace lyceum

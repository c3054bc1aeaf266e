#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Row-wise softmax; A is float or double. `log_sum_exp` may be empty.
template <class A>
struct SoftmaxForward {
  Matrix<const A> x;         // [rows, cols]
  Matrix<A> y;               // [rows, cols]; may be x
  std::span<A> log_sum_exp;  // [rows] or empty
};

/// dx = y ⊙ (dy − Σ dy·y), row by row.
template <class A>
struct SoftmaxBackward {
  Matrix<const A> y, dy;
  Matrix<A> dx;  // may be dy
};

/// The k largest scores of each row, largest first; equal scores in the order of their index. A NaN never wins
/// against a number.
template <class A>
struct TopK {
  Matrix<const A> scores;      // [tokens, experts]
  Matrix<std::int32_t> index;  // [tokens, k]
  Matrix<A> value;             // [tokens, k]
};

/// Choices that fall on all experts alike, whatever the scores: index[t, j] = (t · k + j) mod experts, with its score.
/// To measure speed apart from what a router has learnt.
template <class A>
struct EvenChoices {
  Matrix<const A> scores;      // [tokens, experts]
  Matrix<std::int32_t> index;  // [tokens, k], k at most experts
  Matrix<A> value;             // [tokens, k]
};

/// counts[k, e] += tokens whose k-th choice is e.
struct CountChoices {
  Matrix<const std::int32_t> index;  // [tokens, k]
  Matrix<std::int64_t> counts;       // [k, experts]
};

/// sums[i] += Σ_t x[t, i], in double.
template <class A>
struct SumColumns {
  Matrix<const A> x;       // [rows, cols]
  std::span<double> sums;  // [cols]
};

template <class A>
void run(const CpuStream& stream, const SoftmaxForward<A>& softmax);
template <class A>
void run(const CpuStream& stream, const SoftmaxBackward<A>& softmax);
template <class A>
void run(const CpuStream& stream, const TopK<A>& top_k);
template <class A>
void run(const CpuStream& stream, const EvenChoices<A>& even);
void run(const CpuStream& stream, const CountChoices& count);
template <class A>
void run(const CpuStream& stream, const SumColumns<A>& sum);

template <class A>
void run(const CudaStream& stream, const SoftmaxForward<A>& softmax);
template <class A>
void run(const CudaStream& stream, const SoftmaxBackward<A>& softmax);
template <class A>
void run(const CudaStream& stream, const TopK<A>& top_k);
template <class A>
void run(const CudaStream& stream, const EvenChoices<A>& even);
void run(const CudaStream& stream, const CountChoices& count);
template <class A>
void run(const CudaStream& stream, const SumColumns<A>& sum);

}  // namespace lyceum

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// What RouteTokens adds up for each sequence: in E columns how many choices fell on each expert, in E more the
/// experts' scores over the tokens, and in a last one their squared log-sum-exps.
constexpr std::int64_t load_width(std::int64_t experts) { return 2 * experts + 1; }

/// A router's way from logits to choices, in one pass. A token with logits x has scores
///   s_i = exp(x_i − m) / z    with m = max_i x_i, z = Σ_i exp(x_i − m); log Σ_i exp(x_i) = m + log z
/// and chooses the experts of the k largest logits, largest first, equal ones in the order of their index; a NaN never
/// wins against a number. Gates are the scores of the chosen [DeepSeekMoE eq. 9–10]. Where a row has a NaN or +∞, or
/// nothing above −∞, they are NaN. A is float or double.
template <class A>
struct RouteTokens {
  Matrix<const A> logits;      // [tokens, experts]
  Matrix<std::int32_t> index;  // [tokens, k], different experts
  Matrix<A> gates;             // [tokens, k]
  Matrix<A> norms;             // [tokens, 2]: m and z, for backward
  bool renormalize = false;    // gates are divided by their sum [GShard: over the chosen two]
  /// Choices that fall on all experts alike, after the search that they replace: (t · k + j) mod experts. To measure
  /// speed apart from what a router has learnt.
  bool even = false;
  /// The tokens may be some of all: those from token `first` on, of sequences of seq_len. A sequence then gets what
  /// they add to it, and sums over the ranks that hold the others are due.
  std::int64_t seq_len = 1, first = 0;
  Matrix<double> load;            // [sequences, load_width(experts)], or none
  Matrix<std::int64_t> counts;    // [k, experts], or none: += tokens whose j-th choice is e; with load only
  std::span<double> probability;  // [experts], or none: += the scores of all tokens; with load only
};

/// d_logits of RouteTokens. Of its load, the counts have no derivative.
template <class A>
struct RouteTokensBackward {
  Matrix<const A> logits, norms;  // as above
  Matrix<const std::int32_t> index;
  Matrix<const A> d_gates;      // [tokens, k], or none: zero
  Matrix<const double> d_load;  // [sequences, load_width(experts)], or none: zero
  bool renormalize = false;
  std::int64_t seq_len = 1, first = 0;
  Matrix<A> d_logits;  // [tokens, experts]
};

/// sums[i] += Σ_t x[t, i].
struct SumColumns {
  Matrix<const double> x;  // [rows, cols]
  std::span<double> sums;  // [cols]
};

template <class A>
void run(const CpuStream& stream, const RouteTokens<A>& route);
template <class A>
void run(const CpuStream& stream, const RouteTokensBackward<A>& route);
void run(const CpuStream& stream, const SumColumns& sum);

template <class A>
void run(const CudaStream& stream, const RouteTokens<A>& route);
template <class A>
void run(const CudaStream& stream, const RouteTokensBackward<A>& route);
void run(const CudaStream& stream, const SumColumns& sum);

}  // namespace lyceum

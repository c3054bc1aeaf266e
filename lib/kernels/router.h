#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/routing_policy.h"

namespace lyceum {

/// Returns the number of columns of a router's load, the sums over the tokens of a sequence that RouteTokens computes.
/// With E experts, the columns are
///   [0, E)    the number of choices of each expert;
///   [E, 2E)   the sum of each expert's probabilities;
///   2E        the sum of squared log-sum-exps of the logits (softmax scores only, else 0);
///   2E + 1    the sum of entropies −Σ p log p of the tokens' probabilities (if RouteTokens::entropy, else 0).
constexpr std::int64_t load_width(std::int64_t experts) { return 2 * experts + 2; }

constexpr std::int64_t most_groups = 64;  // largest number of groups of RouteTokens

/// Sigmoid and sqrt_softplus scores clamp logits to at least this value, which keeps the sum of a token's scores away
/// from 0, since probabilities and renormalized gates are divided by such sums.
constexpr int least_logit = -64;

/// Routes tokens: computes scores from the logits, chooses k experts per token and their gates, and adds up the load.
/// A is float or double.
/// 1. Scores s and probabilities p of a token with logits x; x' = max(x, −64):
///      softmax        s_i = exp(x_i − m) / z, p_i = s_i, with m = max_i x_i, z = Σ_i exp(x_i − m)
///      sigmoid        s_i = 1 / (1 + exp(−x'_i)), p_i = s_i / z, with m = 0, z = Σ_i s_i [DeepSeek-V3 eq. 15, 19]
///      sqrt_softplus  s_i = √log(1 + exp(x'_i)), p, m and z as for sigmoid [DeepSeek-V4]
/// 2. Choice: the k experts with the largest keys, in descending order; equal keys in the order of their index. The key
///    is x_i for softmax and s_i + bias_i otherwise. NaN is less than any number.
/// 3. Gates: computed from the scores of the chosen experts by `rule` [DeepSeekMoE eq. 9–10]. They are NaN (except with
///    Gates::ones) if a row has a NaN or, for softmax, a +∞ or only −∞. Finally they are multiplied by gate_scale.
template <class A>
struct RouteTokens {
  Matrix<const A> logits;      // [tokens, experts]
  Matrix<std::int32_t> index;  // [tokens, k]: distinct experts; −1 in columns from `choices` on
  Matrix<A> gates;             // [tokens, k]; 0 in columns from `choices` on
  Matrix<A> norms;             // [tokens, 2]: m and z, for backward
  Scores scores = Scores::softmax;
  Gates rule = Gates::raw;
  double gate_scale = 1;
  std::span<const double> choices = {};  // [1], on the device: experts that a token chooses, 1 … k; or none: k
  std::span<const A> bias = {};          // [experts], or none: zeros; not allowed for softmax
  /// If group_limit > 0, a token chooses only from that many groups of experts. Step 2 then selects the groups first:
  /// those with the largest GroupScore, equal ones in the order of their index. With top2 it is the sum of their two
  /// best s_i + bias_i (of one, if they have one expert) [DeepSeek-V3 §2.1.2], with maximum their best s_i + bias_i
  /// [DeepSeek-V2 §2.2.2].
  std::span<const std::int32_t> group = {};  // [experts]: the group of each expert, in [0, groups)
  std::int64_t groups = 0, group_limit = 0;  // group_limit <= groups <= most_groups
  GroupScore group_score = GroupScore::top2;
  /// Number of best experts to pass over: a token chooses the next k in the same order. Does not affect the choice of
  /// groups. The groups that a token may choose from must have at least skip + k experts.
  std::int64_t skip = 0;
  std::int64_t always_on = 0;  // number of first experts that every token uses; they are not chosen by tokens
  /// If true, choices are replaced, after the search, by an even distribution: choice j of row t is expert
  /// always_on + ((first_token + t) · k + j) mod (experts − always_on), with k the number of choices per token.
  /// Benchmarks use it to measure speed independently of what the router has learnt.
  bool even = false;
  std::int64_t first_token = 0;  // index of row 0's token, for even choices
  bool entropy = false;          // true if the load includes entropies
  /// Row t is token first + t of consecutive sequences of seq_len tokens, of which other ranks may hold the rest.
  /// `load` gets the contributions of these rows only; the caller adds up over the ranks.
  std::int64_t seq_len = 1, first = 0;
  Matrix<double> load;            // [sequences, load_width(experts)], or none
  Matrix<std::int64_t> counts;    // [k, experts], or none: += tokens whose j-th choice is e; needs load
  std::span<double> probability;  // [experts], or none: += sum of probabilities over tokens; needs load
  std::span<double> entropies;    // [1], or none: += sum of entropies over tokens; needs load and entropy
};

/// Returns the number of experts that a token chooses. Reads `choices`: call it on the stream's device only.
template <class Route>
constexpr std::int64_t choices_per_token(const Route& route) {
  return route.choices.empty() ? route.index.cols : static_cast<std::int64_t>(route.choices[0]);
}

template <class A>
void run(const CpuStream& stream, const RouteTokens<A>& route);
template <class A>
void run(const CudaStream& stream, const RouteTokens<A>& route);

#define LYCEUM_ROUTER_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, RouteTokens)

}  // namespace lyceum

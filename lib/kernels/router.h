#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/routing_policy.h"

namespace lyceum {

/// What RouteTokens adds up for each sequence: in E columns how many choices fell on each expert, in E more the
/// experts' probabilities over the tokens, then in one column the tokens' squared log-sum-exps (of softmax scores; else
/// zero), and in a last one the entropies −Σ p log p of their probabilities (where they are asked for; else zero).
constexpr std::int64_t load_width(std::int64_t experts) { return 2 * experts + 2; }

constexpr std::int64_t most_groups = 64;  // of RouteTokens

/// Scores that are no softmax take no logit below this one: sums of them can be divided by, whatever the logits.
constexpr int least_logit = -64;

/// A router's way from logits to choices, in one pass. A token with logits x has scores
///   softmax: s_i = exp(x_i − m) / z with m = max_i x_i, z = Σ_i exp(x_i − m); probabilities p_i = s_i
///   sigmoid: s_i = 1 / (1 + exp(−max(x_i, −64))) with z = Σ_i s_i, m = 0; probabilities p_i = s_i / z [DeepSeek-V3
///   eq. 15, 19]
///   sqrt_softplus: s_i = √log(1 + exp(max(x_i, −64))), the rest as of sigmoid [DeepSeek-V4]
/// and chooses the experts with the k largest of what is compared, largest first, equal ones in the order of their
/// index; a NaN never wins against a number. Compared are logits for softmax, s_i + bias_i for the others. Gates are
/// made from the scores of the chosen by `rule` [DeepSeekMoE eq. 9–10]. Where a row has a NaN or, for softmax, +∞ or
/// nothing above −∞, they are NaN unless they are ones. A is float or double.
template <class A>
struct RouteTokens {
  Matrix<const A> logits;      // [tokens, experts]
  Matrix<std::int32_t> index;  // [tokens, k], different experts; −1 where a token has chosen all that it may
  Matrix<A> gates;             // [tokens, k]; 0 there
  Matrix<A> norms;             // [tokens, 2]: m and z, for backward
  Scores scores = Scores::softmax;
  Gates rule = Gates::raw;
  std::span<const double> choices = {};  // [1]: how many experts a token chooses, 1 … k; or none: k
  std::span<const A> bias = {};          // [experts], or none: zeros; not of softmax scores
  /// Where group_limit is above 0, a token's experts lie in that many groups: those with the largest sums of their two
  /// best scores (+ bias), or of the one that they have, equal ones in the order of their index [DeepSeek-V3 §2.1.2].
  std::span<const std::int32_t> group = {};  // [experts]: the group of each, below `groups`
  std::int64_t groups = 0, group_limit = 0;  // groups: at most most_groups
  /// The best experts of a token that are skipped: it chooses the next k, in the same order. Groups
  /// are those that it chooses without. At most as many as leave k experts, of the groups that it chooses too.
  std::int64_t skip = 0;
  std::int64_t always_on = 0;  // the first experts, which every token has and none chooses
  /// Choices that fall on all experts alike, after the search that they replace: (t · k + j) mod experts. To measure
  /// speed apart from what a router has learnt. Without those that are always on.
  bool even = false;
  bool entropy = false;  // whether the load has entropies
  /// The tokens may be some of all: those from token `first` on, of sequences of seq_len. A sequence then gets what
  /// they add to it, and sums over the ranks that hold the others are due.
  std::int64_t seq_len = 1, first = 0;
  Matrix<double> load;            // [sequences, load_width(experts)], or none
  Matrix<std::int64_t> counts;    // [k, experts], or none: += tokens whose j-th choice is e; with load only
  std::span<double> probability;  // [experts], or none: += the probabilities of all tokens; with load only
  std::span<double> entropies;    // [1], or none: += the entropies of all tokens; with load and entropy only
};

/// Experts that a token chooses, at most those that it may choose from.
template <class Route>
constexpr std::int64_t chosen_of(const Route& route) {
  return route.choices.empty() ? route.index.cols : static_cast<std::int64_t>(route.choices[0]);
}

template <class A>
void run(const CpuStream& stream, const RouteTokens<A>& route);
template <class A>
void run(const CudaStream& stream, const RouteTokens<A>& route);

#define LYCEUM_ROUTER_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, RouteTokens)

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "expert_loads.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// Returns the numbers of tokens that choose each expert [experts], in proportion to `relative`, for `tokens` tokens
/// that choose `top_k` different experts each: they add up to tokens · top_k, and none exceeds `tokens`. Rounded by the
/// largest remainder. Throws an Error unless at least `top_k` experts have relative numbers above 0.
std::vector<std::int64_t> exact_counts(std::span<const double> relative, std::int64_t tokens, std::int64_t top_k);

/// Returns choices of experts with exactly these counts, which are as exact_counts() returns them: [tokens, top_k].
/// The experts of a token differ; otherwise they are random, and determined by `purpose`.
std::vector<std::int32_t> random_choices(std::span<const std::int64_t> counts, std::int64_t top_k,
                                         const std::string& purpose);

/// The tokens of a step, and this rank.
struct TokenShape {
  std::int64_t tokens, micro_batches;  // tokens of a rank per micro-batch
  int ranks, rank;
};

/// The choices of all tokens of a step.
struct RoutedStep {
  std::vector<std::vector<std::vector<std::int64_t>>> counts;   // [micro-batches][layers][experts], of all ranks
  std::vector<std::vector<std::vector<std::int32_t>>> choices;  // [micro-batches][layers][tokens · top_k], of this rank
};

/// Returns the choices of a step. If the load is one of whole steps, their counts are exact and the tokens are divided
/// among the micro-batches at random; else the counts of each micro-batch are exact.
RoutedStep routed_step(const RoutingLoad& load, const TokenShape& shape, std::int64_t step);
/// Returns the counts of a step in one layer [experts], which are the sums of those of routed_step().
std::vector<std::int64_t> counts_of_step(const RoutingLoad& load, const TokenShape& shape, std::int64_t layer,
                                         std::int64_t step);

/// Returns the number of pairs of a token and a rank other than `rank` that has some of its experts, summed over
/// `choices` [tokens, top_k].
std::int64_t remote_pairs(std::span<const std::int32_t> choices, std::int64_t top_k, const Placement& placement,
                          int rank);
/// Returns the expected number of such pairs per token, averaged over ranks, if all sets of `top_k` experts are equally
/// likely (docs/experts.md, "How tokens travel").
double expected_remote_pairs(std::int64_t top_k, const Placement& placement);

}  // namespace lyceum

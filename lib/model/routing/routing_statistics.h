#pragma once

#include <cstdint>
#include <vector>

#include "model/routing/mixture.h"

namespace lyceum {

/// Routing counts and sums of one router over the tokens of one or several passes.
struct RoutingSums {
  MixtureId id;
  std::int64_t top_k = 0, experts = 0;
  /// The first choices, which every token uses and the router cannot choose; their counts are 0.
  std::int64_t always_on = 0;
  std::vector<std::int64_t> counts;  // [top_k · experts], row-major: tokens whose k-th choice is that expert
  std::vector<double> probability;   // [experts]: sum of probabilities over tokens
  double entropy = 0;                // sum over tokens of −Σ p log p, in nats; NaN if unknown
  /// [top_k · experts]: how many of `counts` were dropped beyond an expert's capacity; empty without a capacity factor.
  std::vector<std::int64_t> dropped{};
};

/// Returns the sums of a mixture before any token was routed: all numbers are 0.
RoutingSums no_routing(const Mixture& mixture);
/// Returns such sums for every mixture of the model, in forward order.
std::vector<RoutingSums> no_routing(const Config& config);

/// Returns the same routing without the order of choices: top_k is 1, `counts` and `dropped` have one number per
/// expert, and probabilities and entropy are left out (empty, and 0). The functions below return the same for both.
RoutingSums loads_of(const RoutingSums& sums);

/// Returns the load of the busiest expert divided by the mean over the experts that can be chosen, at least 1. The load
/// of an expert is the number of tokens that chose it as any of their k choices. Returns 0 without tokens.
double imbalance(const RoutingSums& sums);
/// Returns the number of experts that can be chosen but were chosen by no token.
std::int64_t idle_experts(const RoutingSums& sums);
/// Returns the number of idle experts of all mixtures.
std::int64_t idle_experts(const std::vector<RoutingSums>& mixtures);

}  // namespace lyceum

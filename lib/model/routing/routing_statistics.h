#pragma once

#include <cstdint>
#include <vector>

#include "model/routing/mixture.h"

namespace lyceum {

/// What a router did with the tokens of a pass, or of several.
struct RoutingSums {
  MixtureId id;
  std::int64_t top_k = 0, experts = 0;
  std::int64_t always_on = 0;           // the first experts, which every token has and none chooses: not in counts
  std::vector<std::int64_t> counts;     // [top_k · experts]: tokens whose k-th choice is that expert
  std::vector<double> probability;      // [experts]: sum of probabilities over tokens
  double entropy = 0;                   // sum over tokens of −Σ p log p, in nats; NaN where that is not known
  std::vector<std::int64_t> dropped{};  // of counts, those beyond the experts' capacity; none where that is not limited
};

/// The sums of no tokens yet.
RoutingSums no_routing(const Mixture& mixture);
/// Of every mixture of the model, in the order of forward.
std::vector<RoutingSums> no_routing(const Config& config);

/// Tokens of the busiest expert over the mean of all that may be chosen, whatever their rank among a token's choices; 0
/// of no tokens.
double imbalance(const RoutingSums& sums);
/// Experts that may be chosen and that no token chose.
std::int64_t idle_experts(const RoutingSums& sums);
/// The sum over all mixtures.
std::int64_t idle_experts(const std::vector<RoutingSums>& mixtures);

}  // namespace lyceum

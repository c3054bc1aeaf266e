#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/routing/expert_placements.h"
#include "model/routing/routing_statistics.h"

namespace lyceum {

/// How much busier than the mean the busiest expert rank is: FLOPs over the mean of all ranks. In every layer, all
/// ranks wait for the busiest one.
struct RankImbalance {
  double mean = 1;   // averaged over layers
  double worst = 1;  // in the worst layer
};

/// The FLOPs that replicas of the experts of one mixture add to each rank of the expert group, as tokens times
/// Mixture::widths; negative for the owners of these experts, so the sum is 0.
struct MovedFlops {
  MixtureId id;
  std::vector<std::int64_t> of_ranks;
};

/// Returns the imbalance of the tokens that ranks computed, without dropped choices. `mixtures` and `loads`, the
/// loads_of() the routing of all ranks, must contain the mixtures of `placement`. `moved`: what replicas of the experts
/// computed for all ranks; mixtures without an element have none. A layer without tokens is balanced.
RankImbalance rank_imbalance(std::span<const Mixture> mixtures, std::span<const MixturePlacement> placement,
                             std::span<const RoutingSums> loads, std::span<const MovedFlops> moved = {});

}  // namespace lyceum

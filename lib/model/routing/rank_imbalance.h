#pragma once

#include <span>

#include "model/routing/expert_placements.h"
#include "model/routing/routing_statistics.h"

namespace lyceum {

/// How much busier than the mean the busiest expert rank is: FLOPs over the mean of all ranks. In every layer, all
/// ranks wait for the busiest one.
struct RankImbalance {
  double mean = 1;   // averaged over layers
  double worst = 1;  // in the worst layer
};

/// Returns the imbalance of the tokens that experts computed, without dropped choices. `mixtures` and `loads`, the
/// loads_of() the routing of all ranks, must contain the mixtures of `placement`. A layer without tokens is balanced.
RankImbalance rank_imbalance(std::span<const Mixture> mixtures, std::span<const MixturePlacement> placement,
                             std::span<const RoutingSums> loads);

}  // namespace lyceum

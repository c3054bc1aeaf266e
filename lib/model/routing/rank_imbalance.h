#pragma once

#include <span>

#include "model/routing/expert_placements.h"

namespace lyceum {

/// How much busier than the mean the busiest expert rank is: FLOPs over the mean of all ranks. In every layer, all
/// ranks wait for the busiest one.
struct RankImbalance {
  double mean = 1;   // averaged over layers
  double worst = 1;  // in the worst layer
};

/// Returns the imbalance of a load. `mixtures` must contain those of `placement`. `load`: the tokens of each expert; a
/// mixture without an entry has an even load, and a layer without FLOPs is balanced.
RankImbalance rank_imbalance(std::span<const Mixture> mixtures, std::span<const MixturePlacement> placement,
                             std::span<const ExpertLoad> load);

}  // namespace lyceum

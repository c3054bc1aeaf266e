#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/routing/mixture.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// Measured load of the experts of a mixture, for parallel.placement = cost: tokens per expert, on any scale.
struct ExpertLoad {
  MixtureId id;
  std::vector<double> tokens;  // [experts]
  bool operator==(const ExpertLoad&) const = default;
};

/// The two placements of a mixture's experts.
struct ExpertPlacements {
  Placement ranks;  // experts with weights → ranks of the expert group
  /// All experts → groups of the device-level balance loss: the placement on balance.device_groups ranks with an even
  /// load, over which experts without weights are dealt round-robin.
  Placement devices;
};

/// Returns the relative FLOPs of each expert: width times tokens. Every expert counts as having the same number of
/// tokens if `measured` does not contain the mixture. Throws a bad_input Error if the measurement has another number of
/// experts.
std::vector<double> expert_costs(const Mixture& mixture, std::span<const ExpertLoad> measured);

/// Returns expert_costs() without the experts that have no weights, and so no costs.
std::vector<double> weighted_costs(const Mixture& mixture, std::span<const ExpertLoad> measured);

/// Returns the placement of the experts with weights on `ranks` ranks, according to parallel.placement. Experts without
/// weights are on no rank. A pure function of its arguments, so all ranks agree.
Placement place_experts(const Config& config, const Mixture& mixture, int ranks, std::span<const ExpertLoad> measured);
/// Experts of one mixture → ranks of the expert group.
struct MixturePlacement {
  MixtureId id;
  Placement ranks;
};
/// Returns the placement of every mixture whose choices are divided among the ranks of the expert group
/// (Mixture::placed()), in forward order.
std::vector<MixturePlacement> place_all_experts(const Config& config, int ranks, std::span<const ExpertLoad> measured);
/// Returns both placements of a mixture for an expert group of `ranks` ranks.
ExpertPlacements expert_placements(const Config& config, const Mixture& mixture, int ranks,
                                   std::span<const ExpertLoad> measured);

}  // namespace lyceum

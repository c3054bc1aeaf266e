#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/routing/mixture.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// Tokens that each choice of a mixture has taken, on any scale: what parallel.placement = cost goes by.
struct ExpertLoad {
  MixtureId id;
  std::vector<double> tokens;  // [experts]
  bool operator==(const ExpertLoad&) const = default;
};

/// Where the experts of a mixture lie.
struct ExpertPlaces {
  Placement ranks;    // of the expert group: experts with weights
  Placement devices;  // groups of the device-level balance loss: as if balance.device_groups ranks held the experts,
                      // those without weights one after the other
};

/// FLOPs of each expert relative to the others, width times tokens; every expert takes as many tokens where the mixture
/// was not measured. Throws a bad_input Error for a measurement of another number of experts.
std::vector<double> expert_costs(const Mixture& mixture, std::span<const ExpertLoad> measured);

/// Of the experts with weights, as parallel.placement says; no rank holds the others. A pure function, so that all
/// ranks agree.
Placement place_experts(const Config& config, const Mixture& mixture, int ranks, std::span<const ExpertLoad> measured);
struct MixturePlacement {
  MixtureId id;
  Placement ranks;
};
/// Of all mixtures of the model whose choices are shared out to ranks.
std::vector<MixturePlacement> place_all(const Config& config, int ranks, std::span<const ExpertLoad> measured);
ExpertPlaces expert_places(const Config& config, const Mixture& mixture, int ranks,
                           std::span<const ExpertLoad> measured);

}  // namespace lyceum

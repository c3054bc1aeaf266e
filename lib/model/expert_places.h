#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/mixture.h"
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
  Placement ranks;    // of the expert group
  Placement devices;  // groups of the device-level balance loss: as if balance.device_groups ranks held the experts
};

/// FLOPs of each expert relative to the others, width times tokens; every expert takes as many tokens where the mixture
/// was not measured. Throws a bad_input Error for a measurement of another number of experts.
std::vector<double> expert_costs(const Mixture& mixture, std::span<const ExpertLoad> measured);

/// As parallel.placement says, and experts without weights, which are everywhere, counted to one rank after the other.
/// A pure function, so that all ranks agree.
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

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/config/config.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// Tokens that each routed expert of a layer has taken, on any scale: what parallel.placement = cost goes by.
struct ExpertLoad {
  std::int64_t layer = 0;
  std::vector<double> tokens;  // [experts]
  bool operator==(const ExpertLoad&) const = default;
};

/// Where the routed experts of a layer lie.
struct ExpertPlaces {
  Placement ranks;    // of the expert group
  Placement devices;  // groups of the device-level balance loss: as if balance.device_groups ranks held the experts
};

/// Whether a block of a resolved configuration routes tokens to experts.
bool has_experts(const Config& config, std::int64_t layer);

/// Width of each routed expert.
std::vector<std::int64_t> expert_widths(const MoeConfig& moe);

/// FLOPs of each expert relative to the others, width times tokens; every expert takes as many tokens where the layer
/// was not measured. Throws a bad_input Error for a measurement of another number of experts.
std::vector<double> expert_costs(const Config& config, std::int64_t layer, std::span<const ExpertLoad> measured);

/// As parallel.placement says; a pure function, so that all ranks agree.
Placement place_experts(const Config& config, std::int64_t layer, int ranks, std::span<const ExpertLoad> measured);
struct LayerPlacement {
  std::int64_t layer;  // index in the model
  Placement ranks;
};
/// Of all MoE layers of the model.
std::vector<LayerPlacement> place_all(const Config& config, int ranks, std::span<const ExpertLoad> measured);
ExpertPlaces expert_places(const Config& config, std::int64_t layer, int ranks, std::span<const ExpertLoad> measured);

}  // namespace lyceum

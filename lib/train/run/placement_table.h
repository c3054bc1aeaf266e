#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/routing/expert_places.h"

namespace lyceum {

/// The expert ranks of a placement: experts, their parameters and FLOPs over all layers, one row per rank (none
/// for more than 32 ranks), and how much busier than the mean the busiest rank is. Empty without experts.
std::vector<std::string> placement_lines(const Config& config, std::span<const MixturePlacement> layers,
                                         std::span<const ExpertLoad> measured);

}  // namespace lyceum

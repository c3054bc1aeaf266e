#include "model/routing/expert_placements.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace lyceum {

std::vector<double> expert_costs(const Mixture& mixture, std::span<const ExpertLoad> measured) {
  std::vector<double> costs(mixture.widths.begin(), mixture.widths.end());
  const auto load = std::ranges::find(measured, mixture.id, &ExpertLoad::id);
  if (load == measured.end()) return costs;
  require_input(
      load->tokens.size() == costs.size(),
      "the checkpoint measured {} experts in layer {}, this model has {}: set moe.experts as in the checkpoint's run",
      load->tokens.size(), label_of(mixture.id), costs.size());
  for (std::size_t e = 0; e < costs.size(); ++e) costs[e] *= load->tokens[e];
  return costs;
}

std::vector<double> weighted_costs(const Mixture& mixture, std::span<const ExpertLoad> measured) {
  std::vector<double> costs = expert_costs(mixture, measured);
  costs.resize(static_cast<std::size_t>(mixture.weighted()));
  return costs;
}

Placement place_experts(const Config& config, const Mixture& mixture, int ranks, std::span<const ExpertLoad> measured) {
  const auto weighted = static_cast<std::size_t>(mixture.weighted());
  const PlacementKind kind = config.parallel.placement;
  if (kind == PlacementKind::pairs) return Placement::pairs(std::span(mixture.widths).first(weighted), ranks);
  if (kind == PlacementKind::cost) return Placement::by_cost(weighted_costs(mixture, measured), ranks);
  return Placement::contiguous(mixture.weighted(), ranks);
}

std::vector<MixturePlacement> place_all_experts(const Config& config, int ranks, std::span<const ExpertLoad> measured) {
  std::vector<MixturePlacement> all;
  for (const Mixture& mixture : mixtures_of(config)) {
    if (mixture.placed()) all.push_back({mixture.id, place_experts(config, mixture, ranks, measured)});
  }
  return all;
}

ExpertPlacements expert_placements(const Config& config, const Mixture& mixture, int ranks,
                                   std::span<const ExpertLoad> measured) {
  const auto groups = static_cast<int>(config.balance.device_groups);
  std::vector<int> group = place_experts(config, mixture, groups, {}).owner;  // not by load: a restart keeps the loss
  for (int next = 0; std::ssize(group) < mixture.choices(); ++next) group.push_back(next % groups);
  return {.ranks = place_experts(config, mixture, ranks, measured),
          .devices = Placement::of_owners(std::move(group), groups)};
}

}  // namespace lyceum

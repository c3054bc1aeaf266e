#include "model/expert_places.h"

#include <algorithm>

#include "core/error.h"

namespace lyceum {

bool has_experts(const Config& config, std::int64_t layer) {
  return layer >= config.model.first_dense_layers && config.moe.experts > 0;
}

std::vector<std::int64_t> expert_widths(const MoeConfig& moe) {
  if (!moe.expert_sizes.empty()) return moe.expert_sizes;
  return std::vector<std::int64_t>(static_cast<std::size_t>(moe.experts), moe.expert_hidden);
}

std::vector<double> expert_costs(const Config& config, std::int64_t layer, std::span<const ExpertLoad> measured) {
  const std::vector<std::int64_t> widths = expert_widths(config.moe);
  std::vector<double> costs(widths.begin(), widths.end());
  const auto load = std::ranges::find(measured, layer, &ExpertLoad::layer);
  if (load == measured.end()) return costs;
  require_input(
      load->tokens.size() == costs.size(),
      "the checkpoint measured {} experts in layer {}, this model has {}: set moe.experts as it was made with",
      load->tokens.size(), layer, costs.size());
  for (std::size_t e = 0; e < costs.size(); ++e) costs[e] *= load->tokens[e];
  return costs;
}

Placement place_experts(const Config& config, std::int64_t layer, int ranks, std::span<const ExpertLoad> measured) {
  const std::string& kind = config.parallel.placement;
  if (kind == "pairs") return Placement::pairs(expert_widths(config.moe), ranks);
  if (kind == "cost") return Placement::by_cost(expert_costs(config, layer, measured), ranks);
  return Placement::contiguous(config.moe.experts, ranks);
}

std::vector<LayerPlacement> place_all(const Config& config, int ranks, std::span<const ExpertLoad> measured) {
  std::vector<LayerPlacement> all;
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    if (has_experts(config, layer)) all.push_back({layer, place_experts(config, layer, ranks, measured)});
  }
  return all;
}

ExpertPlaces expert_places(const Config& config, std::int64_t layer, int ranks, std::span<const ExpertLoad> measured) {
  return {.ranks = place_experts(config, layer, ranks, measured),
          .devices = place_experts(config, layer, static_cast<int>(config.balance.device_groups), measured)};
}

}  // namespace lyceum

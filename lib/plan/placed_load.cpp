#include "plan/placed_load.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "config/parallel.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {

namespace {

/// Returns the tokens of each choice over their mean [choices]; all 1 for a mixture without a load.
std::vector<double> shares_of(const Mixture& mixture, std::span<const ExpertLoad> loads) {
  std::vector<double> shares(static_cast<std::size_t>(mixture.choices()), 1.0);
  const auto load = std::ranges::find(loads, mixture.id, &ExpertLoad::id);
  if (load == loads.end()) return shares;
  const double mean = std::reduce(load->tokens.begin(), load->tokens.end()) / static_cast<double>(shares.size());
  for (std::size_t e = 0; e < shares.size(); ++e) shares[e] = load->tokens[e] / mean;
  return shares;
}

/// Returns the largest probability that a token travels to one of `groups` equal groups of consecutive ranks.
double most_reached(const Mixture& mixture, const Placement& placement, std::span<const double> shares, int groups) {
  const int each = placement.ranks() / groups;
  const double per_share = static_cast<double>(mixture.k) / static_cast<double>(mixture.choices());
  std::vector<double> missed(static_cast<std::size_t>(groups), 1), only(missed.size());
  for (std::size_t e = 0; e < placement.owner.size(); ++e) {
    const auto group = static_cast<std::size_t>(placement.owner[e] / each);
    missed[group] *= 1 - std::min(per_share * shares[e], 1.0);
    only[group] += per_share * shares[e];
  }
  return mixture.k == 1 ? std::ranges::max(only) : 1 - std::ranges::min(missed);
}

/// Sets the figures of the rank that is busiest, and of those that have most rows.
void measure(const Config& config, const Mixture& mixture, LayerLoad& layer) {
  const std::size_t weighted = layer.ranks.owner.size();
  const std::span<const double> tokens = std::span(layer.share).first(weighted);
  std::vector<double> flops(weighted);
  for (std::size_t e = 0; e < weighted; ++e) flops[e] = tokens[e] * static_cast<double>(mixture.widths[e]);
  layer.imbalance = busiest_over_mean(layer.ranks, flops);
  layer.fullest = busiest_cost(layer.ranks, tokens);
  const std::vector<double> ones(layer.share.size(), 1.0);
  const Placement even = place_experts(config, mixture, config.parallel.expert, {});
  const auto growth = [&](int groups) {
    return most_reached(mixture, layer.ranks, layer.share, groups) / most_reached(mixture, even, ones, groups);
  };
  layer.rows = {.rank = growth(config.parallel.expert), .host = growth(expert_hosts(config.parallel))};
}

LayerLoad layer_load(const Config& config, const ExpertKinds& experts, std::span<const ExpertLoad> loads) {
  const Mixture& mixture = experts.mixture;
  LayerLoad layer{.id = mixture.id,
                  .ranks = place_experts(config, mixture, config.parallel.expert, loads),
                  .share = shares_of(mixture, loads),
                  .rows = {}};
  if (config.parallel.replace_every > 0) {
    const std::vector<double> costs = weighted_costs(mixture, loads);
    if (auto better = better_placement(layer.ranks, costs, experts.kinds, config.parallel.replace_gain)) {
      layer.ranks = std::move(*better);
    }
  }
  measure(config, mixture, layer);
  return layer;
}

}  // namespace

PlacedLoad::PlacedLoad(const Config& config, std::span<const ExpertLoad> loads) {
  for (const ExpertKinds& experts : expert_kinds(config)) {
    layers_.push_back(layer_load(config, experts, loads));
  }
}

const LayerLoad* PlacedLoad::of_layer(std::int64_t layer) const {
  const auto found = std::ranges::find(layers_, layer, [](const LayerLoad& each) { return each.id.layer; });
  return found == layers_.end() ? nullptr : &*found;
}

RankImbalance PlacedLoad::imbalance() const {
  RankImbalance all{.mean = 0, .worst = 0};
  for (const LayerLoad& layer : layers_) {
    all.mean += layer.imbalance / static_cast<double>(layers_.size());
    all.worst = std::max(all.worst, layer.imbalance);
  }
  return all;
}

}  // namespace lyceum

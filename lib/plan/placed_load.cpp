#include "plan/placed_load.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "config/parallel.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {

namespace {

/// Returns the tokens that each choice gets over the mean of all choices [choices]; all 1 for a mixture without a load.
/// In training, an expert accepts at most ⌈capacity_factor · k · seq_len / choices⌉ choices of a sequence, so at most
/// capacity_factor. The rest is dropped, so the mean may be below 1.
std::vector<double> shares_of(const Mixture& mixture, std::span<const ExpertLoad> loads) {
  const auto load = std::ranges::find(loads, mixture.id, &ExpertLoad::id);
  if (load == loads.end()) return std::vector<double>(static_cast<std::size_t>(mixture.choices()), 1.0);
  std::vector<double> shares = load->tokens;
  if (mixture.capacity_factor > 0) {
    for (double& share : shares) share = std::min(share, mixture.capacity_factor);
  }
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
  std::vector<double> shares = shares_of(mixture, loads);
  const ExpertLoad computed{.id = mixture.id, .tokens = shares};  // a run measures the tokens that experts compute
  LayerLoad layer{.id = mixture.id,
                  .ranks = place_experts(config, mixture, config.parallel.expert, {&computed, 1}),
                  .share = std::move(shares),
                  .rows = {}};
  if (config.parallel.replace_every > 0) {
    const std::vector<double> costs = weighted_costs(mixture, {&computed, 1});
    if (auto better = better_placement(layer.ranks, costs, experts.kinds, config.parallel.replace_gain)) {
      layer.ranks = std::move(*better);
    }
  }
  measure(config, mixture, layer);
  return layer;
}

}  // namespace

const PlacedLoad& PlacedLoads::of(const Config& config, std::span<const ExpertLoad> loads) {
  const ParallelConfig& parallel = config.parallel;
  const bool moves = parallel.replace_every > 0;
  const Key key{parallel.expert, expert_hosts(parallel), parallel.placement, moves, moves ? parallel.replace_gain : 0};
  const auto known = placed_.find(key);
  return known != placed_.end() ? known->second : placed_.emplace(key, PlacedLoad(config, loads)).first->second;
}

PlacedLoad::PlacedLoad(const Config& config, std::span<const ExpertLoad> loads) {
  for (const ExpertKinds& experts : expert_kinds(config)) {
    const auto layer = static_cast<std::size_t>(experts.mixture.id.layer);
    if (indices_.size() <= layer) indices_.resize(layer + 1, -1);
    indices_[layer] = std::ssize(layers_);
    layers_.push_back(layer_load(config, experts, loads));
  }
}

const LayerLoad* PlacedLoad::of_layer(std::int64_t layer) const {
  if (layer >= std::ssize(indices_) || indices_[static_cast<std::size_t>(layer)] < 0) return nullptr;
  return &layers_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(layer)])];
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

#include "plan/placed_load.h"

#include <algorithm>
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

/// Returns the largest probability that a token travels to one of `parts` equal parts of the ranks, consecutive ones.
double most_reached(const Mixture& mixture, const Placement& placement, std::span<const double> shares, int parts) {
  const int each = placement.ranks() / parts;
  double most = 0;
  for (int part = 0; part < parts; ++part) {
    double missed = 1, only = 0;
    for (int rank = part * each; rank < (part + 1) * each; ++rank) {
      for (const std::int32_t e : placement.experts_of(rank)) {
        const double chosen =
            static_cast<double>(mixture.k) * shares[static_cast<std::size_t>(e)] / static_cast<double>(shares.size());
        missed *= 1 - std::min(chosen, 1.0);
        only += chosen;
      }
    }
    most = std::max(most, mixture.k == 1 ? only : 1 - missed);
  }
  return most;
}

LayerLoad layer_load(const Config& config, const ExpertKinds& experts, std::span<const ExpertLoad> loads) {
  const Mixture& mixture = experts.mixture;
  const int ranks = config.parallel.expert, hosts = expert_hosts(config.parallel);
  const Placement even = place_experts(config, mixture, ranks, {});
  LayerLoad layer{.id = mixture.id,
                  .ranks = place_experts(config, mixture, ranks, loads),
                  .share = shares_of(mixture, loads),
                  .rows = {}};
  const std::vector<double> costs = weighted_costs(mixture, loads);
  if (config.parallel.replace_every > 0) {
    if (auto better = better_placement(layer.ranks, costs, experts.kinds, config.parallel.replace_gain)) {
      layer.ranks = std::move(*better);
    }
  }
  layer.imbalance = busiest_over_mean(layer.ranks, costs);
  const std::vector<double> ones(layer.share.size(), 1.0);
  const auto growth = [&](int parts) {
    return most_reached(mixture, layer.ranks, layer.share, parts) / most_reached(mixture, even, ones, parts);
  };
  layer.rows = {.rank = growth(ranks), .host = growth(hosts)};
  return layer;
}

}  // namespace

PlacedLoad::PlacedLoad(const Config& config, std::span<const ExpertLoad> loads) {
  for (const ExpertKinds& experts : expert_kinds(config)) layers_.push_back(layer_load(config, experts, loads));
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

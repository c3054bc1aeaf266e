#include "plan/placed_load.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

#include "config/parallel.h"
#include "model/ffn/expert_replicas.h"
#include "parallel/expert/rebalance.h"
#include "parallel/expert/replica_plan.h"

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

/// A part of the tokens of an expert that one rank computes.
struct ExpertPart {
  std::size_t expert;
  double tokens;  // over the mean of all choices of the mixture
};
/// [ranks]: what each rank of an expert group computes.
using RankParts = std::vector<std::vector<ExpertPart>>;

RankParts parts_of_ranks(const Placement& placement, std::span<const double> shares) {
  RankParts parts(static_cast<std::size_t>(placement.ranks()));
  for (std::size_t e = 0; e < placement.owner.size(); ++e) {
    parts[static_cast<std::size_t>(placement.owner[e])].push_back({e, shares[e]});
  }
  return parts;
}

/// Moves the tokens that replicas take from the owners of their experts. `slots`: spare slots per rank.
void add_replicas(const Mixture& mixture, const Placement& placement, std::span<const double> shares, int slots,
                  RankParts& parts) {
  const std::size_t ranks = parts.size(), experts = placement.owner.size();
  // plan_replicas() divides whole rows, whose numbers are i32.
  const double per_rank = std::ranges::max(shares.first(experts)) / static_cast<double>(ranks);
  const double rows_per_share = std::min(0x1p20, 0x1p30 / std::max(per_rank, 1.0));
  std::vector<std::int64_t> totals;
  for (std::size_t e = 0; e < experts; ++e) totals.push_back(std::llround(rows_per_share * shares[e]));
  const std::vector<std::int32_t> rows = dealt_rows(totals, std::ssize(parts));
  const ReplicaPlan plan = plan_replicas({.placement = placement,
                                          .rows = rows,
                                          .costs = std::span(mixture.widths).first(experts),
                                          .slots = slots,
                                          .most_lent = most_lent_replicas(slots, placement.ranks()),
                                          .totals = totals});
  for (std::size_t slot = 0; slot < plan.experts.size(); ++slot) {
    if (plan.experts[slot] < 0 || plan.rows[slot] == 0) continue;
    const auto expert = static_cast<std::size_t>(plan.experts[slot]);
    const double taken = static_cast<double>(plan.rows[slot]) / rows_per_share;
    std::vector<ExpertPart>& owner = parts[static_cast<std::size_t>(placement.owner[expert])];
    std::ranges::find(owner, expert, &ExpertPart::expert)->tokens -= taken;
    parts[slot / static_cast<std::size_t>(slots)].push_back({expert, taken});
  }
}

/// Returns the largest probability that a token travels to one of `groups` equal groups of consecutive ranks.
double most_reached(const Mixture& mixture, const RankParts& parts, std::size_t groups) {
  const std::size_t each = parts.size() / groups;
  const double per_share = static_cast<double>(mixture.k) / static_cast<double>(mixture.choices());
  double most = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    double missed = 1, only = 0;
    for (std::size_t rank = group * each; rank < (group + 1) * each; ++rank) {
      for (const ExpertPart& part : parts[rank]) {
        missed *= 1 - std::min(per_share * part.tokens, 1.0);
        only += per_share * part.tokens;
      }
    }
    most = std::max(most, mixture.k == 1 ? only : 1 - missed);
  }
  return most;
}

/// Sets the figures of the rank that is busiest, and of those that have most rows.
void measure(const Config& config, const Mixture& mixture, const RankParts& parts, LayerLoad& layer) {
  double busiest = 0, all = 0;
  for (const std::vector<ExpertPart>& rank : parts) {
    double flops = 0, tokens = 0;
    for (const ExpertPart& part : rank) {
      flops += part.tokens * static_cast<double>(mixture.widths[part.expert]);
      tokens += part.tokens;
    }
    busiest = std::max(busiest, flops);
    all += flops;
    layer.fullest = std::max(layer.fullest, tokens);
  }
  if (all > 0) layer.imbalance = busiest * static_cast<double>(parts.size()) / all;
  if (config.parallel.expert_exchange == ExpertExchange::bounded) return;  // as many rows travel with any load
  const std::vector<double> ones(layer.share.size(), 1.0);
  const RankParts even = parts_of_ranks(place_experts(config, mixture, config.parallel.expert, {}), ones);
  const auto growth = [&](int groups) {
    const auto number = static_cast<std::size_t>(groups);
    return most_reached(mixture, parts, number) / most_reached(mixture, even, number);
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
  RankParts parts = parts_of_ranks(layer.ranks, layer.share);
  if (const int slots = config.parallel.replicas; slots > 0) {
    add_replicas(mixture, layer.ranks, layer.share, slots, parts);
  }
  measure(config, mixture, parts, layer);
  return layer;
}

}  // namespace

const PlacedLoad& PlacedLoads::of(const Config& config, std::span<const ExpertLoad> loads) {
  const ParallelConfig& parallel = config.parallel;
  const bool moves = parallel.replace_every > 0;
  const Key key{
      parallel.expert,   expert_hosts(parallel),  parallel.placement, moves, moves ? parallel.replace_gain : 0,
      parallel.replicas, parallel.expert_exchange};
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

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "model/routing/expert_placements.h"
#include "model/routing/rank_imbalance.h"
#include "optim/expert_kinds.h"

namespace lyceum {

/// The largest number of rows that are sent to a rank, and to a host, divided by the same number with an even load. It
/// is computed from the probability that a token goes to some expert of a set, 1 − Π(1 − p_e) over the set (choices of
/// different experts are taken as independent), or Σ p_e if k = 1. p_e = k / choices · LayerLoad::share is the
/// probability that a token chooses expert e.
struct RowGrowth {
  double rank = 1, host = 1;
};

/// The load of one layer's experts on the ranks of an expert group.
struct LayerLoad {
  MixtureId id;
  Placement ranks;            // experts → ranks of the expert group
  std::vector<double> share;  // [choices]: tokens that a choice gets over the mean of all choices; see LoadProfile
  double imbalance = 1;       // FLOPs of the busiest rank over the mean of all ranks
  double fullest = 0;         // largest sum of shares that a rank computes, replicas included
  RowGrowth rows;
};

/// The load of all experts on a mesh. All ranks of an expert group wait for the busiest one in every layer.
class PlacedLoad {
 public:
  /// Places the experts of a resolved configuration: by parallel.placement, with `loads` as the measured load, and, if
  /// parallel.replace_every is set, moved from there as a run moves them by this load. `loads`: see LoadProfile;
  /// moe.capacity_factor limits them. Mixtures that are not in `loads` have an even load. With
  /// parallel.replicas, plan_replicas() gives rows of hot experts to other ranks.
  PlacedLoad(const Config& config, std::span<const ExpertLoad> loads);

  /// Returns the load of a layer; null if its experts are not divided among ranks.
  const LayerLoad* of_layer(std::int64_t layer) const;
  RankImbalance imbalance() const;
  const std::vector<LayerLoad>& layers() const { return layers_; }

 private:
  std::vector<LayerLoad> layers_;        // in forward order
  std::vector<std::ptrdiff_t> indices_;  // by layer: the element of layers_; −1 if there is none
};

/// Caches the PlacedLoad of configurations that differ only in mesh, batch and recomputation, or in parallel.placement,
/// parallel.replace_every and parallel.replicas.
class PlacedLoads {
 public:
  /// All calls must have the same loads. The reference remains valid as long as the cache.
  const PlacedLoad& of(const Config& config, std::span<const ExpertLoad> loads);

 private:
  // Expert ranks, their hosts, parallel.placement, true if experts move, parallel.replace_gain, parallel.replicas,
  // parallel.expert_exchange.
  using Key = std::tuple<int, int, PlacementKind, bool, double, int, ExpertExchange>;
  std::map<Key, PlacedLoad> placed_;
};

}  // namespace lyceum

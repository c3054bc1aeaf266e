#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/expert_flops.h"
#include "plan/mesh_plan.h"

namespace lyceum {

/// A plan with one load and one placement of the experts.
struct LoadVariant {
  bool even = false;                                    // with an even load, else with that of the profile
  PlacementKind placement = PlacementKind::contiguous;  // parallel.placement
  bool moved = false;                                   // parallel.replace_every moves experts from there
  int replicas = 0;                                     // parallel.replicas
  bool planned = false;                                 // the variant that the other figures of the plan are for
  RankImbalance imbalance{};                            // of FLOPs
  double most_rows = 0;                                 // most_expert_rows() of the layer that has most
  /// Memory of the spare slots of the rank with most layers: each slot has the size of the widest expert, with weights
  /// for every layer, and gradients for one layer at a time.
  double replica_bytes = 0;
  std::optional<double> step_seconds{};  // with a cluster; without the transfer of weights of replicas

  /// Returns a short description: "even load", "contiguous, moved", "cost, 2 replicas".
  std::string text() const;
};

/// Plans of one mesh with an even load and with a given load.
struct LoadComparison {
  std::string description;  // LoadProfile::description
  int expert_ranks = 1;
  bool bounded = false;               // parallel.expert_exchange = bounded: the load does not change the memory
  std::vector<LoadVariant> variants;  // the first has an even load; empty if one rank has all experts
};

/// Compares placements of the experts of `plan`, which must have been made with `load` and `cluster`: an even load as
/// configured; the load with each parallel.placement that a run may have, where `cost` is by this load, as in a resumed
/// run; the load after experts have moved (parallel.replace_every) from the configured placement; the configured
/// placement and moves with 0, 1 and 2 spare slots for replicas. All others have the configured parallel.replicas.
/// Whatever a run cannot have is left out.
LoadComparison compare_loads(const MeshPlan& plan, const std::optional<Cluster>& cluster, const LoadProfile& load);

/// Returns a table of the comparison.
std::string load_report(const LoadComparison& comparison);

}  // namespace lyceum

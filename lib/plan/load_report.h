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
  bool planned = false;                                 // the variant that the other figures of the plan are for
  RankImbalance imbalance{};                            // of FLOPs
  double most_rows = 0;                                 // most_expert_rows() of the layer that has most
  std::optional<double> step_seconds{};                 // with a cluster

  /// Returns a short description: "even load", "contiguous, moved".
  std::string text() const;
};

/// Plans of one mesh with an even load and with a given load.
struct LoadComparison {
  std::string description;  // LoadProfile::description
  int expert_ranks = 1;
  std::vector<LoadVariant> variants;  // the first has an even load; empty if one rank has all experts
};

/// Compares placements of the experts of `plan`, which must have been made with `load` and `cluster`: an even load as
/// configured; the load with each parallel.placement that a run may have, where `cost` is by this load, as in a resumed
/// run; the load after experts have moved (parallel.replace_every) from the configured placement. Moves are left out if
/// a run cannot make them.
LoadComparison compare_loads(const MeshPlan& plan, const std::optional<Cluster>& cluster, const LoadProfile& load);

/// Returns a table of the comparison.
std::string load_report(const LoadComparison& comparison);

}  // namespace lyceum

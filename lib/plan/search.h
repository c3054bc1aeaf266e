#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/mesh_plan.h"

namespace lyceum {

/// A planned mesh of a search, and a sentence about its speed.
struct Candidate {
  MeshPlan plan;
  /// For the best plan, the share of computation and the memory. For another plan, the category in which it loses the
  /// most time against the best.
  std::string reason;
};

struct SearchResult {
  std::vector<Candidate> best;  // fastest first; of variants with equal axes only the fastest
  int considered = 0;           // number of meshes and variants on which a step is possible
  int too_large = 0;            // how many of these do not fit in memory, in some training stage
};

/// The largest number of ranks for which a search is allowed.
inline constexpr int most_ranks = 1'000'000;

/// Returns the fastest ways to train `config` on `world` ranks of a cluster. `config` must not be resolved; the results
/// are. Meshes are compared by the time of a step in the first training stage. `fixed`: keys ("parallel.pipeline")
/// whose values stay; batch.micro = 0 means that it is chosen. `most`: limit of the results. `load`: as for
/// plan_mesh(). The search varies
///   - pipeline, tensor, expert and expert_tensor ranks: divisors of the ranks; tensor is a power of two within one
///     machine, expert_tensor is 1 or parallel.tensor; parallel.sequence is on if tensor > 1,
///   - ZeRO 1 to 3, of which the lowest that fits in memory is used, and all kinds of recomputation,
///   - the schedules 1f1b, zero_bubble and interleaved with two stages per rank, and micro-batches of 1, 2, 4 and 8
///     sequences.
/// Throws a usage Error with search_problems() if no mesh is possible, one with the closest mesh if none fits in
/// memory, and one if every step has too many micro-batches (can_plan_step()).
SearchResult search_meshes(const Config& config, int world, const Cluster& cluster, const std::set<std::string>& fixed,
                           std::size_t most = 5, const LoadProfile* load = nullptr);
/// Returns the problems of the mesh of `world` ranks that has the fewest; empty if some mesh is possible. If another
/// batch.global would make a mesh possible, the only message names the nearest such values. Parameters as for
/// search_meshes().
std::vector<std::string> search_problems(const Config& config, int world, int node_ranks,
                                         const std::set<std::string>& fixed);

}  // namespace lyceum

#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/mesh_plan.h"

namespace lyceum {

/// A planned mesh of a search, and a sentence about its speed.
struct Candidate {
  MeshPlan plan;
  /// Main cost of the best plan; for another plan, the category in which it loses the most time against the best.
  std::string reason;
};

struct SearchResult {
  std::vector<Candidate> best;  // fastest first; of variants with equal axes only the fastest
  int considered = 0;           // number of meshes and variants on which a step is possible
  int too_large = 0;            // how many of these do not fit in memory
};

/// Limit of the ranks in a search.
inline constexpr int most_ranks = 1'000'000;

/// Returns the fastest ways to train `config` on `world` ranks of a cluster. The search varies pipeline, tensor, expert
/// and expert_tensor ranks, ZeRO, schedule, micro-batch and recomputation, over all values that divide and fit in
/// memory. Tensor ranks are on one machine; expert_tensor is 1 or parallel.tensor. `fixed`: keys ("parallel.pipeline")
/// whose values stay; batch.micro = 0 means that it is chosen. `most`: limit of the results. Throws a usage Error with
/// search_problems() if no mesh is possible, and one with the closest mesh if none fits in memory.
SearchResult search_meshes(const Config& config, int world, const Cluster& cluster, const std::set<std::string>& fixed,
                           std::size_t most = 5);
/// Returns all problems of that mesh of `world` ranks which has the fewest; empty if some mesh is possible.
std::vector<std::string> search_problems(const Config& config, int world, int node_ranks,
                                         const std::set<std::string>& fixed);

}  // namespace lyceum

#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/mesh_plan.h"

namespace lyceum {

/// A mesh that was considered, and why another one is better.
struct Candidate {
  MeshPlan plan;
  std::string reason;  // of the best: what binds it; of the others: what they lose against it
};

struct SearchResult {
  std::vector<Candidate> best;  // fastest first; of equal axes only the fastest variant
  int considered = 0;           // meshes and variants that a step can be run on
  int too_large = 0;            // of them, those whose memory does not fit
};

/// The most ranks that a search goes through.
inline constexpr int most_ranks = 1'000'000;

/// The fastest ways to train `config` on `world` ranks of a cluster: pipeline, tensor, expert and expert_tensor ranks,
/// ZeRO, schedule, micro-batch and recomputation, all that divide and fit into memory. Tensor ranks share a machine;
/// expert_tensor is 1 or parallel.tensor. `fixed`: keys ("parallel.pipeline") whose values are not to be changed; a
/// batch.micro of 0 is chosen. `most`: results. Throws a usage Error where no mesh is possible, with search_problems(),
/// and where none fits, with the nearest miss.
SearchResult search_meshes(const Config& config, int world, const Cluster& cluster, const std::set<std::string>& fixed,
                           std::size_t most = 5);
/// All problems of the mesh of `world` ranks with the fewest mistakes; empty where one is possible.
std::vector<std::string> search_problems(const Config& config, int world, int node_ranks,
                                         const std::set<std::string>& fixed);

}  // namespace lyceum

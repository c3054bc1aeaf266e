#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// Returns the divisors of `number` that are at most `most`, in ascending order; empty if `number` is below 1.
std::vector<int> divisors(std::int64_t number, std::int64_t most);

/// Returns `config` with the default mesh, for one rank, and batch.micro = 0. Its contradictions exist on every mesh.
Config without_mesh(Config config);

/// The meshes, micro-batches and schedules that a search compares.
struct Variants {
  std::vector<Config> possible;  // resolved configurations with which a step is possible
  /// Problems of the mesh that has the fewest, if no configuration is possible; see search_problems(). Otherwise empty.
  std::vector<std::string> problems;
};

/// Returns the variants of `config` for `world` ranks, `node_ranks` per machine. ZeRO and recomputation stay as in
/// `config`. parallel.replicas is lowered to what a mesh can have, unless it is fixed. `fixed`: keys
/// ("parallel.pipeline") whose values stay, unless batch.micro is 0. If only one of parallel.schedule and
/// parallel.virtual_stages is fixed, the other one is chosen to match.
Variants find_variants(const Config& config, int world, int node_ranks, const std::set<std::string>& fixed);

}  // namespace lyceum

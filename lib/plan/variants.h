#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// Returns the divisors of `number` that are at most `most`, in ascending order; empty if `number` is below 1.
std::vector<int> divisors(std::int64_t number, std::int64_t most);

/// Returns the configuration for one rank. Its contradictions exist on every mesh.
Config without_mesh(Config config);

/// The meshes, micro-batches and schedules that a search compares.
struct Variants {
  std::vector<Config> possible;  // resolved configurations with which a step is possible
  /// If none is possible, the problems of the mesh with the fewest.
  std::vector<std::string> problems;
};

/// Returns the variants of `config` for `world` ranks, `node_ranks` per machine. `fixed`: keys ("parallel.pipeline")
/// whose values stay; batch.micro = 0 counts as not given. If only one of parallel.schedule and parallel.virtual_stages
/// is given, the other one is chosen to match.
Variants find_variants(const Config& config, int world, int node_ranks, const std::set<std::string>& fixed);

}  // namespace lyceum

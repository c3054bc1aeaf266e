#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// Returns the divisors of a number that are at most `most`, ascending; none of a number below 1.
std::vector<int> divisors(std::int64_t number, std::int64_t most);

/// The configuration of one rank: what is wrong with it is wrong whatever the mesh.
Config without_mesh(Config config);

/// The meshes, micro-batches and schedules that a search compares.
struct Variants {
  std::vector<Config> possible;       // on which a step can be run, resolved
  std::vector<std::string> problems;  // where none is: the problems of the one with the fewest mistakes
};

/// Of `world` ranks, `node_ranks` of them on a machine. `fixed`: keys ("parallel.pipeline") whose values stay; a
/// batch.micro of 0 does not count as given. Of a schedule and its virtual stages, what is not given follows the other.
Variants find_variants(const Config& config, int world, int node_ranks, const std::set<std::string>& fixed);

}  // namespace lyceum

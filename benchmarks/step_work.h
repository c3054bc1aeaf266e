#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/profile.h"

namespace lyceum {

/// What a part of a training step has to do, whoever does it.
struct Work {
  double flops = 0;  // what the mathematics needs; causal attention at half
  double bytes = 0;  // every operand of every operation once, from and to memory
};

/// Parts of a step, in the order that tables show them.
struct Phase {
  std::string name;
  Work work;           // of one rank, where all have the same share
  double seconds = 0;  // a step
};

/// The parts of a step of the resolved `config` on `ranks` ranks: experts, projections, attention and so on; "other"
/// last. Without times.
std::vector<Phase> phases_of_step(const Config& config, int ranks);

/// Adds the times of `steps` steps, and under "between operations" what is missing of `seconds` a step.
void add_times(std::vector<Phase>& phases, const std::map<std::string, Profile::Entry>& entries, int steps,
               double seconds);

}  // namespace lyceum

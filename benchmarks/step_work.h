#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/profile.h"

namespace lyceum {

/// The work of a part of a training step, independent of how it is implemented.
struct Work {
  double flops = 0;  // as required by the mathematics; causal attention counts half
  double bytes = 0;  // each operand of each operation once, from or to memory
};

/// A part of a step. Tables show phases in the order of their list.
struct Phase {
  std::string name;
  Work work;           // per rank, assuming equal shares
  double seconds = 0;  // per step
};

/// Returns the phases of a step of the resolved `config` on `ranks` ranks: experts, projections, attention and so on,
/// "other" last. Their times are 0.
std::vector<Phase> phases_of_step(const Config& config, int ranks);

/// Adds the profiled times of `steps` steps to the phases, and a phase "between operations" with the remainder of
/// `seconds` per step.
void add_times(std::vector<Phase>& phases, const std::map<std::string, Profile::Entry>& entries, int steps,
               double seconds);

}  // namespace lyceum

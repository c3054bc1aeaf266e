#pragma once

#include <algorithm>
#include <map>
#include <span>

#include "core/range.h"
#include "plan/traffic.h"
#include "plan/units.h"
#include "plan/zero_states.h"

namespace lyceum {

/// Bytes of one rank, each MemoryKind at its own most.
struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0;
  /// What comes and goes of weights and gradients, and is not there when activations are at their most.
  double passing = 0;
  double updated = 0;  // weights that the rank's optimizer updates: a number, not bytes
  /// All of them at their most at one time.
  double total() const {
    return weights + gradients + optimizer + activations + buffers - std::min(passing, activations);
  }
};

/// Weights, gradients and optimizer of a rank's units by parallel.zero. `played`: of a step, where the stage is 2 or 3.
RankMemory state_memory(const Config& config, const Place& place, std::span<const PlannedUnit> units,
                        const ZeroStates& played);
/// The table of rotary positions, which every stage of a model that has them keeps all the time.
double rope_bytes(const Config& config);
/// The key-value caches of these blocks on this rank, for one sequence of batch.seq_len tokens.
double cache_bytes(const Config& config, const Place& place, const Range& blocks);
/// What the end of a step keeps all the time: tables of what it sums and updates, and the numbers that it reports.
double update_buffers(const Config& config, const Place& place, std::span<const PlannedUnit> units);
/// What play_zero() wants to know of the units that ZeRO shares out.
std::map<int, LayerBytes> shared_layers(const Config& config, const Place& place, std::span<const PlannedUnit> units);

/// The traffic of a step that is not part of a pass: sums and gathers over copies, and what ends a step.
struct StepTraffic {
  Traffic reductions;  // behind backward
  Traffic gathers;     // values, in stages 1 to 3, and summed gradients in stage 0
  Traffic end;         // a tied table's two gradients, losses, routing counts, norms, what routers learn from
};
StepTraffic step_traffic(const Config& config, const Place& place, std::span<const PlannedUnit> units,
                         const ZeroStates& played);

}  // namespace lyceum

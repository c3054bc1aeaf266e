#pragma once

#include "plan/activations.h"
#include "plan/units.h"
#include "plan/zero_states.h"

namespace lyceum {

/// Bytes of one rank at their most, by MemoryKind.
struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0;
  double total() const { return weights + gradients + optimizer + activations + buffers; }
};

/// Weights, gradients and optimizer of a rank's units by parallel.zero. `played`: of a step, where the stage is 2 or 3.
RankMemory state_memory(const Config& config, const Place& place, std::span<const PlannedUnit> units,
                        const ZeroStates& played);
/// What play_zero() wants to know of the units that ZeRO shares out.
std::map<int, LayerBytes> shared_layers(const Config& config, const Place& place, std::span<const PlannedUnit> units);

/// Sums and gathers over copies, and what ends a step: the traffic of a step that is not part of a pass.
/// `layers`: of Transformer::layers(); `sparse_blocks`: with routed experts, on this rank.
struct StepTraffic {
  Traffic reductions;  // behind backward
  Traffic gathers;     // values, in stages 1 to 3, and summed gradients in stage 0
  Traffic end;         // losses, routing counts, gradient norm
};
StepTraffic step_traffic(const Config& config, const Place& place, std::span<const PlannedUnit> units,
                         const ZeroStates& played, std::int64_t sparse_blocks);

}  // namespace lyceum

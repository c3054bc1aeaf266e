#pragma once

#include <algorithm>
#include <map>
#include <span>

#include "core/range.h"
#include "plan/traffic.h"
#include "plan/units.h"
#include "plan/zero_states.h"

namespace lyceum {

/// Bytes of one rank by MemoryKind; each is the maximum of that kind during a step.
struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0;
  /// Bytes of weights and gradients that ZeRO holds only temporarily, in excess of those that it holds when activations
  /// are at their maximum.
  double passing = 0;
  double updated = 0;  // number of weights (not bytes) that the rank's optimizer updates
  /// Returns the maximum of the sum. Temporary weights and gradients are not at their maximum at the same time as
  /// activations.
  double total() const {
    return weights + gradients + optimizer + activations + buffers - std::min(passing, activations);
  }
};

/// Returns weights, gradients and optimizer state of a rank's units according to parallel.zero. `zero_states`: the ZeRO
/// states of a step; used in stages 2 and 3.
RankMemory state_memory(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units,
                        const ZeroStates& zero_states);
/// Returns the bytes of the table of rotary positions, of which every stage holds a copy; 0 if attention has no rotary
/// positions.
double rope_bytes(const Config& config);
/// Returns the bytes of the key-value caches of `blocks` on this rank, for one sequence of batch.seq_len tokens.
double cache_bytes(const Config& config, const MeshRank& mesh_rank, const Range& blocks);
/// Returns the bytes that the end of a step holds permanently: tables of the memory that it sums and updates, and the
/// numbers that it reports.
double update_buffers(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units);
/// Returns the bytes per layer of the units that ZeRO shards, as simulate_zero() needs them. Layers without such units
/// have 0.
std::map<int, LayerBytes> shared_layers(const Config& config, const MeshRank& mesh_rank,
                                        std::span<const PlannedUnit> units);

/// The traffic of a step outside of its passes: reductions and gathers over copies, and the end of the step.
struct StepTraffic {
  Traffic reductions;  // of gradients; overlap with backward
  Traffic gathers;     // of values in stages 1 to 3; of summed gradients in stage 0
  Traffic end;         // the two gradients of a tied table, losses, routing counts, norms, counts for router biases
};
/// Returns the traffic of a step of this rank outside of its passes.
StepTraffic step_traffic(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units,
                         const ZeroStates& zero_states);

}  // namespace lyceum

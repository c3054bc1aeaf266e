#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "core/range.h"
#include "plan/traffic.h"
#include "plan/units.h"
#include "plan/zero_states.h"

namespace lyceum {

/// Bytes of one rank by MemoryKind; each is the maximum of that kind during a step.
struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0;
  /// Bytes of host memory that the rank's process takes in addition, see process_bytes(); 0 if the memory is that of a
  /// GPU.
  double process = 0;
  /// Bytes of NCCL on the GPU, see nccl_communicators(); 0 if parallel.nccl_channels does not limit them.
  double nccl = 0;
  /// Bytes of the values that the rank writes to checkpoints: its share of weights, optimizer state and averages, which
  /// the copies of a unit divide between them with every stage of ZeRO.
  double saved = 0;
  /// Bytes of weights and gradients that ZeRO holds temporarily: their maximum minus those that it holds when
  /// activations are at their maximum.
  double passing = 0;
  /// Bytes that the rank's optimizer reads and writes in an update, without those of Muon's products.
  double update_bytes = 0;
  /// Temporary memory of an update (Muon's rounds) in bytes, `activations`, and of the passes, `pass_activations`. They
  /// do not exist at the same time, so RankMemory::activations is the larger of both. `freed`: bytes of gradients that
  /// ZeRO holds temporarily during the passes, but not during an update.
  struct Update {
    double activations, pass_activations, freed;
  };
  std::optional<Update> update = {};  // none if an update needs no memory beyond that of the rank

  /// Returns the maximum of the sum of all kinds, without `process`. Temporary weights and gradients are not at their
  /// maximum at the same time as activations, so the smaller of `passing` and the activations of passes is not counted.
  double total() const {
    const double passes = update ? update->pass_activations : activations;
    const double most = passes - std::min(passing, passes);
    return weights + gradients + optimizer + buffers + nccl +
           (update ? std::max(most, update->activations - update->freed) : most);
  }
  /// Returns the maximum of the memory that the rank takes from its machine.
  double resident() const { return total() + process; }
};

/// Returns the memory of a rank's weights, gradients and optimizer state according to parallel.zero, with `passing` and
/// `update_bytes`; activations and buffers are 0. `units`: the units of the rank. `zero_states`: the ZeRO states of a
/// step, used with ZeRO 2 and 3 only.
RankMemory state_memory(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units,
                        const ZeroStates& zero_states);
/// Returns the bytes of the table of rotary positions, of which every stage holds a copy; 0 if attention has no rotary
/// positions.
double rope_bytes(const Config& config);
/// Returns the bytes of the key-value caches of `blocks` on this rank, for one sequence of batch.seq_len tokens.
double cache_bytes(const Config& config, const MeshRank& mesh_rank, const Range& blocks);
/// Returns the bytes of the key-value caches of all blocks for such a sequence, without a mesh.
double cache_bytes(const Config& config);
/// Returns the bytes that the end of a step holds permanently: tables of the memory that it sums and updates, and the
/// numbers that it reports. Does not include Muon's tables, see plan_muon().
double update_buffers(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units);
/// Returns the bytes of the buffers in which experts move to other ranks, see ExpertMover; 0 if they do not move.
double move_bytes(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units);
/// Returns the bytes of each layer's values and gradients, by ParameterUnit::layer(), as simulate_zero() needs them.
/// Only units that several ranks hold copies of count, since ZeRO shards only these; other layers have 0.
std::map<int, LayerBytes> shared_layers(const Config& config, const MeshRank& mesh_rank,
                                        std::span<const PlannedUnit> units);

/// The traffic of a step outside of its passes.
struct StepTraffic {
  Traffic reductions;  // sums of gradients over copies; overlap with backward
  Traffic gathers;     // gathers of values with ZeRO 1 to 3, of summed gradients with ZeRO 0
  Traffic end;         // gradient sum of a shared table, losses, norms, loads, counts for router biases
  Traffic matrices;    // parts of matrices that Muon orthogonalises, and its results, see plan_muon()
};
/// Returns the traffic of this rank in one step, except that of Transformer::update_routers() and of Muon.
StepTraffic step_traffic(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units,
                         const ZeroStates& zero_states);

}  // namespace lyceum

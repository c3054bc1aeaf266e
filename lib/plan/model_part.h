#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/routing/mixture.h"
#include "plan/traffic.h"
#include "plan/units.h"

namespace lyceum {

/// Memory of one turn of a pass (see Turns), in bytes on top of what was in use when the pass began.
struct TurnNeed {
  /// `most`: maximum during the turn. `at_end`: in use at its end.
  double most, at_end;
};

/// Bytes of activations that a part of the model needs for one micro-batch on a rank.
struct ActivationNeed {
  double forward = 0;  // maximum during forward, on top of `saved`
  double saved = 0;    // held from forward until backward, including the part's input
  /// Held until delayed weight gradients are computed, without the gradient of the input.
  double saved_for_weights = 0;
  double backward = 0;  // maximum during backward, on top of `saved`
  /// Maximum during a backward pass that delays weight gradients and so keeps their operands, on top of `saved`.
  double backward_input = 0;
  double backward_weight = 0;  // maximum while delayed weight gradients are computed, on top of `saved_for_weights`
  /// One entry per turn of the pass, for parallel.overlap = batches.
  std::vector<TurnNeed> forward_turns{}, backward_turns{};
};

/// One part of a model (input, block or output) as one rank runs it with one micro-batch. The numbers are measured
/// while the code of the part runs on a RehearsalStream, where the tokens of every rank choose every expert equally
/// often.
struct ModelPart {
  PassTraffic traffic;  // backward includes what is sent again because of model.recompute
  /// Traffic once per step: Transformer::update_routers() at its end, and weights of replicas in its first pass.
  Traffic update;
  ActivationNeed activations;
  double buffers = 0;  // bytes that it holds permanently
  /// The units that Transformer creates. A cached part may have been measured for another block, so the caller must set
  /// their `layer`.
  std::vector<PlannedUnit> units;
};
/// Measures one part of the model on the rank `mesh_rank`, by running its code on a RehearsalStream without other
/// ranks. Throws a usage Error if the part is too large to rehearse on this machine.
ModelPart rehearse_part(const Config& config, const MeshRank& mesh_rank, const StageParts& parts);

/// Caches the parts of configurations that differ only in mesh, batch.global, batch.micro and recomputation, so that
/// equal parts are rehearsed once. References remain valid as long as the cache.
class ModelParts {
 public:
  const ModelPart& input(const Config& config, const MeshRank& mesh_rank);
  /// Returns the block `layer`. Blocks with the same number of routed experts are equal, unless optim.train_only,
  /// optim.adamw_only or optim.lora_targets may distinguish layers.
  const ModelPart& block(const Config& config, const MeshRank& mesh_rank, std::int64_t layer);
  const ModelPart& output(const Config& config, const MeshRank& mesh_rank);

 private:
  enum class Kind : std::uint8_t { input, dense, sparse, output };
  /// All properties that may change a part if configurations differ only as the class allows.
  struct Key {
    Kind kind;
    std::int64_t layer;              // 0 if all blocks of a kind train the same tensors
    std::int64_t experts;            // number of routed experts of a sparse block, else 0
    std::int64_t attention_experts;  // of a block; 0 if it has none
    /// Coordinates and sizes in the smallest stage in which all groups have the same sizes, see smallest_equivalent().
    int tensor, expert, expert_tensor, expert_hosts, ranks, rank;
    bool sequence;
    std::int64_t micro;
    Recompute recompute;
    ExpertExchange expert_exchange;
    /// Decide how often weights of replicas are sent; default values without parallel.replicas.
    int replicas, pipeline;
    ScheduleKind schedule;
    Overlap overlap;
    auto operator<=>(const Key&) const = default;
  };
  const ModelPart& find(const Config& config, const MeshRank& mesh_rank, Kind kind, const StageParts& parts);

  std::map<Key, ModelPart> parts_;
};

}  // namespace lyceum

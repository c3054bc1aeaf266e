#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "model/stages.h"
#include "plan/expert_flops.h"
#include "plan/mesh_plan.h"

namespace lyceum {

/// The measured part and the FLOPs of a block on one rank, for one micro-batch. `part` points into ModelParts; `flops`
/// and `experts` are the share of this rank.
struct BlockKind {
  const ModelPart* part;
  StageFlops flops;
  ExpertFlops experts;  // zero for a dense block
};
/// Caches BlockKind for ranks that have the same coordinates in different stages. Blocks with the same ModelPart and
/// window are of one kind, unless their experts have loads.
class BlockKinds {
 public:
  /// Returns block `layer` on this rank. `parts` must outlive this. `load`: as for expert_flops(); all calls must be
  /// for loads of the same PlacedLoad.
  const BlockKind& of(const Config& config, const MeshRank& mesh_rank, std::int64_t layer, const LayerLoad* load,
                      ModelParts& parts);

 private:
  std::map<std::tuple<const ModelPart*, std::int64_t, const LayerLoad*>, BlockKind> kinds_;  // by part, window, load
};

/// One pipeline stage of a rank, for one micro-batch: traffic, bytes of memory, FLOPs.
struct StageLoad {
  PassTraffic traffic;
  /// Traffic of the ranks for which the others wait. With PlanInput::load it exceeds `traffic`, since more rows are
  /// sent to these ranks.
  PassTraffic awaited;
  Traffic update;  // traffic of its routers at the end of a step
  SavedActivations saved{.until_input_gradient = 0, .until_weight_gradient = 0};
  double forward = 0;   // maximum during forward, on top of what is kept after it
  double backward = 0;  // maximum during backward, on top of what is kept before it
  /// Maximum as in `backward`, but during a backward pass that delays weight gradients and so keeps their operands.
  double backward_input = 0;
  double backward_weight = 0;  // maximum while delayed weight gradients are computed, on top of what is kept for them
  std::vector<TurnNeed> forward_turns{}, backward_turns{};
  double buffers = 0;
  std::vector<PlannedUnit> units;
  StageFlops flops;     // this rank's share, for one micro-batch
  ExpertFlops experts;  // the part of `flops.forward` in sparse blocks
};

/// The loads of all stages of a rank.
struct RankLoad {
  std::vector<int> stages;       // indices of the stages in the pipeline, ascending
  std::vector<StageLoad> loads;  // one per element of `stages`
};

/// Returns the world ranks that may be the worst of a row: one of them needs the most memory, and one takes the
/// longest, except for uneven remainders of divisions. Ranks of a row differ by the experts that they hold. If experts
/// have equal widths and no rank holds more of them than the first rank of the row, that rank is the only candidate.
/// Otherwise there is one candidate per rank of the first expert group.
std::vector<int> candidate_worst_ranks(const Config& config, int world, int row);
/// Returns the loads of all stages of the rank `mesh_rank`. Use `kinds` only for ranks that differ in nothing but the
/// pipeline coordinate.
RankLoad rank_load(const PlanInput& input, const MeshRank& mesh_rank, BlockKinds& kinds, ModelParts& parts);
/// Returns the plan of the rank with coordinates `mesh_rank`, whose number in the world is `rank`, from its `load`.
RankPlan plan_loaded_rank(const PlanInput& input, const MeshRank& mesh_rank, int rank, const RankLoad& load);

}  // namespace lyceum

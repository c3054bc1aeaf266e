#pragma once

#include <map>
#include <vector>

#include "model/stages.h"
#include "plan/mesh_plan.h"

namespace lyceum {

/// A block of a rank for one micro-batch.
struct BlockKind {
  const Piece* piece;
  StageFlops flops;
};
/// The kinds of blocks of ranks in the same place of other stages, see Pieces.
class BlockKinds {
 public:
  const BlockKind& of(const Config& config, const Place& place, std::int64_t layer, Pieces& pieces);

 private:
  std::map<const Piece*, BlockKind> kinds_;
};

/// One pipeline stage of a rank for one micro-batch.
struct StageLoad {
  PassTraffic traffic;
  Traffic update;  // of its routers, at the end of a step
  Kept kept{.until_input_gradient = 0, .until_weight_gradient = 0};
  double forward = 0;         // the most on top of what is kept then
  double backward = 0;        // the most on top of what is kept before it
  double backward_input = 0;  // the same where pieces leave what their weight gradients need
  std::vector<TurnNeed> forward_turns{}, backward_turns{};
  double buffers = 0;
  std::vector<PlannedUnit> units;
  StageFlops flops;  // of this rank, one micro-batch
};

/// All stages of a rank.
struct RankLoad {
  std::vector<int> stages;  // by number
  std::vector<StageLoad> loads;
};

/// Ranks of a row, one of which needs the most memory, and one of which takes the longest, but for what a cut leaves
/// uneven: ranks differ by the experts that they hold, and where these are alike, the first has the most of everything.
std::vector<int> unlike_ranks(const Config& config, int world, int row);
RankLoad rank_load(const PlanInput& input, const Place& place, BlockKinds& kinds, Pieces& pieces);
/// Memory and traffic of the rank at `place`.
RankPlan plan_place(const PlanInput& input, const Place& place, int rank, const RankLoad& load);

}  // namespace lyceum

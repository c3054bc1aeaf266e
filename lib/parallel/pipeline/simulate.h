#pragma once

#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"

namespace lyceum {

/// The cost of each kind of action for one micro-batch in one stage, in seconds or any other unit.
struct StageCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
};
struct Costs {
  std::vector<StageCosts> stages;
  double transfer = 0;  // from the end of an action until its result is on another rank
};
/// Returns equal costs for every stage.
Costs equal_costs(const PipelineShape& shape, const StageCosts& stage, double transfer = 0);

/// Computes when each action of the schedule starts and ends, as early as the costs allow. costs.stages has one element
/// per stage. If the schedule contains sends and receives, they take no time on their rank; if not, results are
/// transferred as soon as they exist. Throws an Error "rank 0 is stuck at B0: …" on a deadlock.
Timeline simulate(const Schedule& schedule, const Costs& costs);

}  // namespace lyceum

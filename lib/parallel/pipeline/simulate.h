#pragma once

#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"

namespace lyceum {

/// The cost of one micro-batch in one stage, in seconds or any unit.
struct StageCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
};
struct Costs {
  std::vector<StageCosts> stages;
  double transfer = 0;  // from the end of an action until a stage on another rank has what it made
};
/// Equal costs for every stage.
Costs equal_costs(const PipelineShape& shape, const StageCosts& stage, double transfer = 0);

/// Runs the schedule, with or without sends and receives, as fast as the costs allow. Sends and receives take no time
/// of the rank. Throws an Error "rank 0 is stuck at B0: …" if it cannot continue.
Timeline simulate(const Schedule& schedule, const Costs& costs);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/mesh_plan.h"

namespace lyceum {

/// The plan of a training stage, see config/training_stages.h.
struct StagePlan {
  int stage;
  std::int64_t first_step, last_step;
  MeshPlan plan;
  /// Returns the tokens of all steps of the stage.
  double tokens() const;
};

/// Plans all stages of a run on one mesh; empty if there is only one. `first`: the plan of the resolved configuration,
/// which describes stage 1. `cluster` and `load` must be those of `first`.
std::vector<StagePlan> plan_stages(const MeshPlan& first, const std::optional<Cluster>& cluster,
                                   const LoadProfile* load = nullptr);

/// Returns the seconds of a run of `tokens` tokens that makes the stages one after the other: fewer steps, or more
/// steps of the last stage, than configured. The plans must have a time.
double seconds_of_run(std::span<const StagePlan> stages, double tokens);

/// Returns a table with one line per stage: steps, batch, tokens, memory of the rank that needs most and, if the plans
/// have a time, the time of a step and of the stage. Empty without stages.
std::string stages_report(std::span<const StagePlan> stages);

}  // namespace lyceum

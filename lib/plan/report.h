#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/load_report.h"
#include "plan/search.h"
#include "plan/stage_plans.h"

namespace lyceum {

/// Returns a table of the parameters by part of the model, and the FLOPs and the key-value cache of a sequence.
std::string model_report(const Config& config);
/// The duration of a training run of `tokens` tokens. The plan must have a time.
struct Training {
  double tokens = 0, seconds = 0, device_hours = 0;
  /// `plan` must have a time. `stages`: plan_stages() of it.
  Training(const MeshPlan& plan, double tokens, std::span<const StagePlan> stages = {});
};
/// Returns the text of a plan: memory by kind, bytes by group and operation, the pipeline, stages_report(), and, if the
/// plan has a time, the times of a step and of a run of `tokens` tokens. `cluster` must be the plan's. `stages`:
/// plan_stages() of the plan.
std::string mesh_report(const MeshPlan& plan, const std::optional<Cluster>& cluster, double tokens,
                        std::span<const StagePlan> stages = {});
/// Returns a table of the meshes that a search found, with the reasons why the others are slower than the best.
/// `cluster` must be that of the search.
std::string search_report(const SearchResult& result, int world, const Cluster& cluster);

/// Returns the contents of model_report(), mesh_report() and search_report(), and `warnings`, as one JSON object;
/// docs/planning.md lists the keys. `search`: null if the mesh was not searched. `cluster` must be the plan's.
/// `stages`: plan_stages() of the plan. `load`: compare_loads() of the plan; null if it has an even load.
std::string json_report(const MeshPlan& plan, const std::optional<Cluster>& cluster, const SearchResult* search,
                        double tokens, const std::vector<std::string>& warnings = {},
                        std::span<const StagePlan> stages = {}, const LoadComparison* load = nullptr);

}  // namespace lyceum

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/search.h"

namespace lyceum {

/// Parameters by part of the model, and FLOPs.
std::string model_report(const Config& config);
/// What a run of `tokens` takes on a plan that has a time.
struct Training {
  double tokens = 0, seconds = 0, device_hours = 0;
  Training(const MeshPlan& plan, double tokens);
};
/// Memory by kind, bytes by group and operation, the pipeline, and with rates the time of a step and of a run of
/// `tokens`.
std::string mesh_report(const MeshPlan& plan, const std::optional<Cluster>& cluster, double tokens);
/// The meshes that a search found, and why the others are slower.
std::string search_report(const SearchResult& result, int world, const Cluster& cluster);

/// All of it as one JSON object; `search` may be null. Keys: docs/planning.md.
std::string json_report(const MeshPlan& plan, const std::optional<Cluster>& cluster, const SearchResult* search,
                        double tokens, const std::vector<std::string>& warnings = {});

}  // namespace lyceum

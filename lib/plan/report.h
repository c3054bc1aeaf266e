#pragma once

#include <optional>
#include <string>

#include "plan/search.h"

namespace lyceum {

/// Parameters by part of the model, and FLOPs.
std::string model_report(const Config& config);
/// Memory by kind, bytes by group and operation, the pipeline, and with rates the time of a step.
std::string mesh_report(const MeshPlan& plan, const std::optional<Cluster>& cluster);
/// The meshes that a search found, and why the others are slower.
std::string search_report(const SearchResult& result, int world, const Cluster& cluster);

/// All of it as one JSON object; `search` may be null. Keys: docs/planning.md.
std::string json_report(const MeshPlan& plan, const std::optional<Cluster>& cluster, const SearchResult* search);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/config/config.h"
#include "io/routing/log.h"
#include "model/expert_places.h"
#include "model/routing_statistics.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Collective over the world: the sums over all tokens of every mixture of the model, from each rank's own.
std::vector<RoutingSums> whole_routing(const Config& config, const Mesh& mesh, const std::vector<RoutingSums>& own);

/// sums += more, mixture by mixture; `sums` may have none yet.
void add(std::vector<RoutingSums>& sums, const std::vector<RoutingSums>& more);

/// As a routing log records them; the sums are over `tokens` tokens.
std::vector<LayerRouting> routing_record(const std::vector<RoutingSums>& layers, std::int64_t tokens);

/// The layers of a routing log of a model whose experts lie so; a mixture that is not placed counts as rank 0's.
std::vector<RoutingLog::Layer> logged_layers(const Config& config, std::span<const MixturePlacement> placement);

}  // namespace lyceum

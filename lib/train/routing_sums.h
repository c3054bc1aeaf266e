#pragma once

#include <cstdint>
#include <vector>

#include "io/config.h"
#include "io/routing_log.h"
#include "model/transformer.h"

namespace lyceum {

/// Collective: the sums over all ranks of a group that have different tokens.
std::vector<RoutingSums> summed_over(const ProcessGroup& group, std::vector<RoutingSums> layers);

/// As a routing log records them; the sums are over `tokens` tokens.
std::vector<LayerRouting> routing_record(const std::vector<RoutingSums>& layers, std::int64_t tokens);

/// The layers of a routing log of this model.
std::vector<RoutingLog::Layer> logged_layers(const Config& config, const Transformer& model);

}  // namespace lyceum

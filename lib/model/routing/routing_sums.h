#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/config.h"
#include "io/routing/log.h"
#include "model/routing/expert_places.h"
#include "model/routing/routing_statistics.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Collective over the world: the sums over all tokens of every mixture of the model, from each rank's own.
std::vector<RoutingSums> whole_routing(const Config& config, const Mesh& mesh, const std::vector<RoutingSums>& own);

/// sums += more, mixture by mixture; `sums` may have none yet.
void add(std::vector<RoutingSums>& sums, const std::vector<RoutingSums>& more);

/// Accumulates the balance of single steps of one mixture.
struct StepBalanceSums {
  std::int64_t steps = 0;
  double max_vio_sum = 0, max_vio_max = 0;
  double idle_sum = 0, idle_max = 0;

  /// Adds one step, whose counts are over all ranks.
  void add(const RoutingSums& step);
  /// Unknown without steps.
  StepBalance balance() const;
  bool operator==(const StepBalanceSums&) const = default;
};

/// As a routing log records them; the sums are over `tokens` tokens. `steps`: for each layer, or empty if unknown.
std::vector<LayerRouting> routing_record(const std::vector<RoutingSums>& layers, std::int64_t tokens,
                                         std::span<const StepBalanceSums> steps = {});

/// The layers of a routing log of a model whose experts lie so; a mixture that is not placed counts as rank 0's.
std::vector<RoutingLog::Layer> logged_layers(const Config& config, std::span<const MixturePlacement> placement);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/config.h"
#include "core/stream.h"
#include "io/routing/log.h"
#include "model/routing/expert_placements.h"
#include "model/routing/routing_statistics.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Returns the routing of every mixture of the model, summed over the tokens of all ranks, in forward order. `own`: the
/// sums of this rank's mixtures. Collective over the world; all ranks get the same result.
std::vector<RoutingSums> sum_routing_over_ranks(const Config& config, const Mesh& mesh,
                                                const std::vector<RoutingSums>& own);

/// Returns loads_of() the routing of every mixture of the model, summed over the tokens of all ranks, in forward order:
/// all that a step of training needs. `own`: the sums of this rank's mixtures. The groups of the mesh send tensors in
/// the memory of `stream`. Collective over the world; all ranks get the same result.
std::vector<RoutingSums> sum_loads_over_ranks(const Stream& stream, const Config& config, const Mesh& mesh,
                                              const std::vector<RoutingSums>& own);
/// Returns the number of integers that sum_loads_over_ranks() sums.
std::int64_t summed_loads(const Config& config);

/// Rounds sums of probabilities and entropies to multiples of 2^-20. So later sums of them are exact, in whatever order
/// they are made, if they are below 2^33.
void round_to_exact_sums(std::vector<RoutingSums>& sums);

/// Adds `more` to `sums`, mixture by mixture. If `sums` is empty, it becomes a copy of `more`.
void add(std::vector<RoutingSums>& sums, const std::vector<RoutingSums>& more);

/// The replicas of the experts of one mixture in one or several steps.
struct ReplicaSums {
  MixtureId id;
  ReplicaCounts counts;
  bool operator==(const ReplicaSums&) const = default;
};
/// Adds `more` to `sums`, mixture by mixture.
void add(std::vector<ReplicaSums>& sums, const std::vector<ReplicaSums>& more);
/// Returns the replicas of every mixture whose experts are divided among ranks, summed over all ranks, in forward
/// order. `own`: those that this rank counts. Collective over the world; all ranks get the same result.
std::vector<ReplicaSums> sum_replica_counts_over_ranks(const Config& config, const Mesh& mesh,
                                                       const std::vector<ReplicaSums>& own);

/// Sums and maxima over steps of the balance of one mixture in each step: MaxVio (imbalance − 1) and the number of idle
/// experts.
struct StepBalanceSums {
  std::int64_t steps = 0;
  double max_vio_sum = 0, max_vio_max = 0;
  double idle_sum = 0, idle_max = 0;

  /// Adds one step. Its counts must be summed over all ranks.
  void add(const RoutingSums& step);
  /// Returns means and maxima over the steps; unknown values if there were none.
  StepBalance balance() const;
  bool operator==(const StepBalanceSums&) const = default;
};

/// Returns a record for the routing log: the counts of `layers`, and their probabilities and entropies as means over
/// `tokens`, the number of tokens that were summed. `steps`: one entry per element of `layers`; empty if unknown.
/// `replicas`: those of mixtures that may have any.
std::vector<LayerRouting> routing_record(const std::vector<RoutingSums>& layers, std::int64_t tokens,
                                         std::span<const StepBalanceSums> steps = {},
                                         std::span<const ReplicaSums> replicas = {});

/// Returns the descriptions of the mixtures for a routing log. The rank of each expert is taken from `placement`; it is
/// 0 for experts of a mixture that is not in `placement`, and −1 for experts without weights.
std::vector<RoutingLog::Layer> logged_layers(const Config& config, std::span<const MixturePlacement> placement);

}  // namespace lyceum

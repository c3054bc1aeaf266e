#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "config/config.h"
#include "core/stream.h"
#include "io/routing/log.h"
#include "model/routing/rank_imbalance.h"
#include "model/routing/routing_sums.h"
#include "parallel/comm/mesh.h"
#include "parallel/expert/expert_route.h"
#include "parallel/expert/replica_plan.h"
#include "parallel/expert/replica_shares.h"

namespace lyceum {

/// The use of replicas in a training step.
struct ReplicaUse {
  std::int64_t replicas = 0;           // summed over layers, passes and expert groups
  std::vector<MovedFlops> moved = {};  // of the mixtures whose experts may have replicas, summed over passes
};

/// The replicas of experts that the passes of one training step use. Backward and recomputation of a pass use those
/// that its first forward pass has chosen. Each step begins without replicas, so their choice depends on the step
/// alone, and a step that is repeated, or made after a restart, has the same bits.
class StepReplicas {
 public:
  /// The choice for one layer and pass.
  struct Choice {
    ReplicaPlan plan;
    std::vector<ReplicaShare> shares;  // of this rank's rows
    std::vector<std::int64_t> rows;    // see rows_on_rank()
    /// In a rehearsal, the route of this rank's tokens with the numbers of rows that the plan gives them.
    std::optional<ExpertRoute> rehearsed;
    ReplicaCounts replicas;           // in this rank's spare slots; 0 if another expert-tensor rank counts them
    std::vector<std::int64_t> moved;  // MovedFlops::of_ranks of this rank's tokens
  };

  /// Forgets all choices. Call before a step and before a repetition of it.
  void clear() { choices_.clear(); }
  /// Returns the choice for a layer and pass; null before its first forward pass.
  std::shared_ptr<const Choice>& at(const MixtureId& id, std::int64_t pass) { return choices_[{id, pass}]; }
  /// Returns this rank's part of the use of replicas in all passes so far.
  ReplicaUse use() const;
  /// Returns the same for the routing log, without transfers of weights.
  std::vector<ReplicaSums> sums() const;

 private:
  std::map<std::pair<MixtureId, std::int64_t>, std::shared_ptr<const Choice>> choices_;
};

/// Returns the sum of the use of replicas over all ranks. `own`: this rank's part. Collective over the world; all ranks
/// get the same result. The groups of the mesh send tensors in the memory of `stream`.
ReplicaUse sum_replicas_over_ranks(const Stream& stream, const Config& config, const Mesh& mesh, const ReplicaUse& own);
/// Returns the number of integers that sum_replicas_over_ranks() sums.
std::int64_t summed_replicas(const Config& config);

}  // namespace lyceum

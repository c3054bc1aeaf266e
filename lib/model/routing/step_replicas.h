#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "model/routing/mixture.h"
#include "parallel/expert/expert_route.h"
#include "parallel/expert/replica_plan.h"
#include "parallel/expert/replica_shares.h"

namespace lyceum {

/// The use of replicas by the experts of a step that share ranks with those of this rank.
struct ReplicaUse {
  std::int64_t replicas = 0;  // summed over layers and passes
  /// FLOPs of the busiest expert rank over the mean, averaged over layers and passes: without replicas and with them.
  double imbalance_before = 1, imbalance = 1;
};

/// The replicas of experts that the passes of one training step use. Backward and recomputation of a pass use those
/// that its first forward pass has chosen. Each step begins without replicas, so their choice depends on the step
/// alone, and a step that is repeated, or made after a restart, has the same bits.
class StepReplicas {
 public:
  /// The choice for one layer and pass.
  struct Choice {
    ReplicaPlan plan;
    std::vector<ReplicaShare> shares;    // of this rank's rows
    ExpertRoute route;                   // of this rank's tokens to experts and replicas
    double imbalance_before, imbalance;  // see ReplicaUse
  };

  /// Forgets all choices. Call before a step and before a repetition of it.
  void clear() { choices_.clear(); }
  /// Returns the choice for a layer and pass; null before its first forward pass.
  std::shared_ptr<const Choice>& at(const MixtureId& id, std::int64_t pass) { return choices_[{id, pass}]; }
  /// Returns the use of replicas in all passes so far.
  ReplicaUse use() const;

 private:
  std::map<std::pair<MixtureId, std::int64_t>, std::shared_ptr<const Choice>> choices_;
};

}  // namespace lyceum

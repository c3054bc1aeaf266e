#include "model/routing/step_replicas.h"

namespace lyceum {

ReplicaUse StepReplicas::use() const {
  ReplicaUse use;
  if (choices_.empty()) return use;
  use.imbalance_before = use.imbalance = 0;
  for (const auto& [place, choice] : choices_) {
    use.replicas += choice->plan.replicas();
    use.imbalance_before += choice->imbalance_before / static_cast<double>(choices_.size());
    use.imbalance += choice->imbalance / static_cast<double>(choices_.size());
  }
  return use;
}

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <vector>

#include "autograd/parameter.h"
#include "model/routing/mixture.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// The transfers of weights to the replicas of a layer's experts.
struct ReplicaTransfers {
  std::int64_t received = 0;  // replicas whose weights this rank has received; see PlacedExperts::replica_transfers()
  std::int64_t bytes = 0;     // that this rank has sent
};

/// The routed experts of a layer, which are divided among the ranks of an expert group. A rank has a slot for each of
/// its experts: consecutive parameters of the unit of experts. Slots are in the order of Placement::order. While
/// training, experts can exchange slots of equal size: the parameters stay where they are, but hold other experts.
class PlacedExperts {
 public:
  virtual MixtureId id() const = 0;
  virtual const Placement& placement() const = 0;
  /// Returns the unit that consists of the slots of this rank.
  virtual const ParameterUnit& unit() const = 0;
  /// Returns the elements of the slot of each expert [experts] in the unit of a rank that holds it.
  virtual std::vector<std::int64_t> slot_elements() const = 0;
  /// Makes the slots belong to the experts of another placement: tokens travel to the new owners from now on, and the
  /// logical tensors of the parameters are those of the new experts. Values stay as they are; the caller moves them.
  /// The slots of both placements must have equal sizes. Call between steps.
  virtual void set_placement(const Placement& placement) = 0;
  /// Makes the next pass send the weights of all its replicas (parallel.replicas). Call after weights have changed.
  virtual void forget_replicas() = 0;
  /// Returns the transfers since forget_replicas(). If several ranks share each expert, `received` is 0 on all but the
  /// first of them, so that sums over ranks count each transfer once.
  virtual ReplicaTransfers replica_transfers() const = 0;

 protected:
  ~PlacedExperts() = default;
};

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "autograd/expert_bank.h"
#include "autograd/parameter.h"
#include "parallel/expert/replica_exchange.h"
#include "parallel/expert/replica_plan.h"

namespace lyceum {

/// The spare slots of this rank for one layer: memory for replicas of experts that other ranks own. It also knows what
/// the spare slots of all ranks of the expert group hold, so that only missing weights are sent. Calls are
/// collective over the group, and all ranks must pass the same plans. A call makes the same operations for every plan;
/// only their sizes differ.
class SpareSlots {
 public:
  /// The experts of a layer.
  struct Experts {
    std::span<const std::int64_t> widths;    // [experts]
    std::span<const std::int64_t> elements;  // [experts]: size of each expert's slot in the unit of its owner
    ParameterUnit* originals;                // the unit of this rank's own experts; must outlive this
    std::vector<ExpertBank::Expert> own;     // parameters of these experts
    /// Adds parameters like those of an expert of this width on this rank to a unit.
    std::function<ExpertBank::Expert(std::int64_t width, ParameterUnit& unit)> make;
  };
  /// Allocates `slots` spare slots, each large enough for the largest expert, for weights of type `type`. `most_lent`:
  /// see ReplicaProblem.
  SpareSlots(const Stream& stream, DType type, const ProcessGroup& group, const Experts& experts, int slots,
             int most_lent);

  /// Returns the expert in each spare slot, see ReplicaProblem::held.
  std::span<const std::int32_t> held() const { return held_; }
  /// Returns the problem of choosing replicas for a pass with these rows, see ReplicaProblem. It refers to `placement`,
  /// `rows` and this.
  ReplicaProblem problem(const Placement& placement, std::span<const std::int32_t> rows, int ranks_per_host) const;
  /// Forgets all replicas: their weights, or the placement of their originals, have changed.
  void forget();

  /// Starts to send the weights of those replicas that the slots do not hold. The values of the originals must be in
  /// memory until await() returns.
  void send(const Stream& stream, const ReplicaPlan& plan, const Placement& placement);
  /// Waits until the slots hold the replicas of a plan. Pass `again` if other replicas may have been sent since send()
  /// for this plan: what is missing is then sent once more. Throws an Error if something is missing without `again`.
  void await(const Stream& stream, const ReplicaPlan& plan, const Placement& placement, bool again);
  /// Returns the experts of this rank, followed by one expert per spare slot: the replica of the plan, or an arbitrary
  /// one if the plan does not use the slot.
  std::vector<ExpertBank::Expert> bank(const ReplicaPlan& plan) const;

  /// Gives the spare slots memory for gradients, zeroed for the replicas of a plan.
  void begin_gradients(const Stream& stream, const ReplicaPlan& plan);
  /// Starts to send the gradients of the replicas to the owners.
  void return_gradients(const Stream& stream, const ReplicaPlan& plan, const Placement& placement);
  /// Waits for what return_gradients() has started. Owners add the gradients to those of their experts in the order of
  /// the ranks. Frees the memory.
  void finish_gradients(const Stream& stream);

  /// Returns the number of replicas whose weights this rank has received since forget(), repetitions included.
  std::int64_t newly_received() const { return received_; }
  /// Returns the bytes of weights that this rank has sent since forget().
  std::int64_t new_bytes_of_weights() const { return weights_.bytes_sent() - bytes_before_; }
  /// Returns the bytes of weights and of gradients that this rank has sent so far.
  std::int64_t bytes_of_weights() const { return weights_.bytes_sent(); }
  std::int64_t bytes_of_gradients() const { return gradient_exchange_.bytes_sent(); }

 private:
  /// A spare slot as a replica of an expert of a certain width.
  struct Replica {
    std::unique_ptr<ParameterUnit> unit;
    ExpertBank::Expert expert;
  };
  const Replica& replica(std::int32_t expert, std::size_t slot) const;
  /// Returns the expert in a spare slot of this rank; −1 if the plan does not use the slot.
  std::int32_t expert_in(const ReplicaPlan& plan, std::size_t slot) const;
  /// Returns what a spare slot of this rank holds; a replica of any width if the plan does not use the slot.
  const Replica& in_slot(const ReplicaPlan& plan, std::size_t slot) const;
  /// Returns the links of the replicas of a plan; only of those that are not held, if `missing`.
  std::vector<ReplicaLink> links(const ReplicaPlan& plan, const Placement& placement, bool missing) const;
  void start(const Stream& stream, const ReplicaPlan& plan, const Placement& placement);

  const ProcessGroup* group_;
  ParameterUnit* originals_;
  std::vector<ExpertBank::Expert> own_;
  std::vector<std::int64_t> widths_, elements_;
  std::size_t slots_;
  int most_lent_;
  std::int64_t largest_;                                   // elements of a spare slot
  Tensor values_;                                          // [slots · largest]
  Tensor gradients_;                                       // the same in accumulator type, during weight gradients
  std::map<std::int64_t, std::vector<Replica>> replicas_;  // [width][slot]
  std::vector<std::int32_t> held_;                         // [ranks · slots]
  ReplicaExchange weights_, gradient_exchange_;
  std::int64_t received_ = 0, bytes_before_ = 0;  // since forget(), and before it
};

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <vector>

#include "autograd/parameter.h"
#include "core/range.h"
#include "parallel/comm/process_group.h"
#include "parallel/data/copies.h"
#include "parallel/data/flat_range.h"

namespace lyceum {

/// The part of a unit that this rank updates. The memory of the tensors does not move as long as the ShardedUnit
/// exists.
struct UnitShare {
  const ParameterUnit* unit;
  const ProcessGroup* copies;  // the ranks that hold copies
  Range owned;                 // this rank's part of the flat memory; the parts of all copies cover the unit once
  Range updated;      // the range that this rank's optimizer updates: `owned` if optimizer state is sharded, else all
  std::int64_t size;  // elements of the unit's flat memory, including padding for parts of equal size
  bool sharded;       // true if `updated` is `owned`
  Tensor values;      // flat [updated.count]: the weights that the model reads
  /// Flat [updated.count]: sums over copies and micro-batches, valid after the step; undefined if not trained.
  Tensor gradients;
};

/// Owns the memory of one unit on this rank and transfers its values and gradients. With n > 1 copies:
///
/// - stage 0: every copy has all values and gradients.
/// - stage 1: as 0, but each rank updates only its own part; then the values are gathered.
/// - stage 2: as 1, but all gradients exist only from the first contribution of a micro-batch until they are summed
///   over the copies. Each rank keeps the sum of its part.
/// - stage 3: as 2, but each rank keeps only its own part of the values. All values are gathered while they are in use.
///
/// Sums over copies have the order of ProcessGroup::all_reduce_async(). Stages 0 and 1 add up the micro-batches of a
/// step locally and sum over the copies once. Stages 2 and 3 sum each micro-batch over the copies and add the result to
/// the previous ones. So the bits are the same in all stages for one micro-batch per step; for more, they are the same
/// in stages 0 and 1, and in stages 2 and 3. With a single copy nothing is sharded. A frozen unit has only values; they
/// never change, and are sharded in stage 3 only.
///
/// An adapted unit (ParameterUnit::Role) keeps values W as a frozen one, and has neither sums of gradients nor
/// reductions. Its other memory is temporary in every stage: the effective values W + scale · B · A, from
/// await_values() to release_values(), and this rank's gradients dW, from begin_gradients() to free_gradients(). The
/// adapters are parameters of other units.
class ShardedUnit {
 public:
  struct Plan {
    int stage;
    std::int64_t micro_batches;  // per step
    DType type;                  // type of the values
  };
  /// `unit` must not be a buffer. `unit` and `groups` must outlive the object.
  ShardedUnit(ParameterUnit& unit, const CopyGroups& groups, const Plan& plan, Stream stream);
  ~ShardedUnit();
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;

  ParameterUnit& unit() const { return unit_; }
  /// Sets Plan::micro_batches of the following steps. Call between steps.
  void set_micro_batches(std::int64_t micro_batches) { plan_.micro_batches = micro_batches; }
  /// Returns the part that this rank updates.
  UnitShare share() const;
  /// Initialises the values this rank keeps, see ParameterUnit::initialize().
  void initialize(std::uint64_t seed);

  /// True if a pass should call start_gather() for the next layer: values are gathered from other copies.
  bool gathers() const { return shards(3); }
  /// Collective over the copies in stage 3: starts to gather the values, unless they have been gathered or are being
  /// gathered. No effect in other stages.
  void start_gather();
  /// Calls start_gather(), then blocks until all values are on this rank and up to date. Forms the effective values of
  /// an adapted unit, whose adapters must have all their values.
  void await_values();
  /// False for an adapted unit whose effective values are not formed.
  bool has_effective_values() const { return !unit_.adapted() || adapted_; }
  /// Frees the gathered values in stage 3, after waiting for a gather in flight, and effective values in any stage. No
  /// effect on other units.
  void release_values();
  /// Call after the owned values have changed, on all copies. Starts to gather the new values in stages 1 and 2. In
  /// stage 3, frees gathered values, so that the next use gathers the new ones.
  void values_changed();
  /// Advances the gather of values that is in flight, if any. True if none is in flight any more.
  bool poll_values() { return gather_.test(); }
  /// Waits for the gather of values that is in flight, if any. Unlike await_values(), does not start one.
  void wait_for_values() { gather_.wait(); }

  /// Call before the first contribution of a micro-batch: waits for the previous sum over copies, provides memory for
  /// all gradients, and begins new sums in it, see ParameterUnit::begin_gradients() (stages 0 and 1 keep the sum of
  /// earlier micro-batches of the step). Further calls in the same micro-batch have no effect.
  void begin_gradients();
  /// Records that the gradient of one more parameter of this unit is complete for this micro-batch. If it is still
  /// empty, it becomes zero. Returns true only for the last parameter, and only if the call has started the sum over
  /// copies or the unit is adapted. Throws if called for more micro-batches than planned.
  ///
  /// Only the number of calls counts. With delayed weight gradients, a parameter may be final in the next micro-batch
  /// before others have contributed to this one. The sum of the micro-batch then lacks their contributions, and that of
  /// the next one contains them.
  bool count_final_parameter(Parameter& parameter);
  /// Frees the gradients of an adapted unit, which are complete for this micro-batch.
  void free_gradients();
  /// Waits for the sum over copies in flight, if any, and adds it to the kept sum (stages 2 and 3).
  void finish_reduction();
  /// True from the start of a sum over copies until finish_reduction().
  bool reducing() const { return reducing_; }
  /// Advances the sum over copies. True if it has completed.
  bool poll_reduction() { return reduction_.test(); }
  /// True if finish_reduction() frees the memory of all gradients.
  bool frees_gradients() const { return shards(2); }
  /// Waits for all transfers of gradients. Throws unless the gradients of all micro-batches of the step are complete.
  void finish_step();

 private:
  /// True if values() of the unit are in memory only while they are in use.
  bool frees_values() const { return shards(3) || unit_.adapted(); }
  bool shards(int stage) const { return copies() > 1 && plan_.stage >= stage; }
  int copies() const { return groups_.reductions.size(); }
  Tensor owned_part(const Tensor& whole) const { return whole.view(owned_.first, {owned_.count}); }

  ParameterUnit& unit_;
  const CopyGroups& groups_;
  Plan plan_;
  Stream stream_;
  std::int64_t size_;                  // elements of flat memory, including padding
  std::vector<std::int64_t> extents_;  // number of elements of each copy's part
  Range owned_;
  Tensor values_;  // the values that are kept: all, or the owned part
  Tensor sum_;     // sum of the owned gradients: a view of all gradients, or a separate tensor in stages 2 and 3
  std::int64_t final_parameters_ = 0;      // parameters whose gradient is complete in this micro-batch
  std::int64_t complete_ = 0;              // micro-batches of this step whose gradients are complete
  std::int64_t summed_micro_batches_ = 0;  // micro-batches added to sum_, in stages 2 and 3
  bool producing_ = false, reducing_ = false;
  bool adapted_ = false;  // the values of an adapted unit are the effective ones
  Pending reduction_, gather_, gradient_gather_;
};

}  // namespace lyceum

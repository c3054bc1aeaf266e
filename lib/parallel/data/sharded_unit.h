#pragma once

#include <cstdint>
#include <vector>

#include "autograd/parameter.h"
#include "core/range.h"
#include "parallel/comm/process_group.h"
#include "parallel/data/flat_range.h"

namespace lyceum {

/// The ranks that hold copies of the same units, with a communicator for each direction, so that neither waits for the
/// order of the other.
struct CopyGroups {
  ProcessGroup reductions, gathers;
};

/// What this rank updates of a unit, and where. The tensors stay the same for the unit's life.
struct UnitShare {
  const ParameterUnit* unit;
  const ProcessGroup* copies;  // the ranks that hold copies
  Range owned;                 // this rank's part alone; the copies' parts cut the unit
  Range updated;               // what its optimizer keeps: the owned part, or all where state is not sharded
  std::int64_t size;           // of the unit's flat memory, with padding for equal parts
  bool sharded;                // which of the two
  Tensor values;               // flat [updated.count]: what the model reads
  Tensor gradients;            // flat [updated.count]: the sum over copies and micro-batches, when that is finished;
                               // undefined of a unit that is not trained
};

/// The memory of one unit on this rank, and its transfers. Over n copies, n > 1, and by `stage`:
///   0  values and gradients whole
///   1  the same, but only the owned part is updated; values are gathered afterwards
///   2  gradients whole only from the first contribution of a micro-batch until their sum over copies; the owned part
///      is kept
///   3  values too: the owned part is kept, all are gathered for as long as they are used
/// Sums over copies are x_0 + x_1 + … in rank order. Stages 0 and 1 add a step's micro-batches up in place and sum them
/// over copies once; stages 2 and 3 sum each over copies and add that to those before it. So a step of one micro-batch
/// gives the same bits in every stage, a longer one in 0 and 1, and in 2 and 3. Without copies everything is whole.
/// A frozen unit has values alone, whole but in stage 3, which never change.
class ShardedUnit {
 public:
  struct Plan {
    int stage;
    std::int64_t micro_batches;  // a step
    DType type;                  // of the values
  };
  /// The unit is no buffer. `groups` must outlive this.
  ShardedUnit(ParameterUnit& unit, const CopyGroups& groups, const Plan& plan, Stream stream);
  ~ShardedUnit();
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;

  ParameterUnit& unit() const { return unit_; }
  UnitShare share() const;
  void initialize(std::uint64_t seed);

  /// Starts bringing the values where they are not here (stage 3).
  void start_gather();
  /// Waits until all values are here and current.
  void await_values();
  /// Gives values of others back (stage 3).
  void release_values();
  /// The owned values changed: others get them, at once, or when they are needed (stage 3).
  void values_changed();
  /// Moves a transfer of values on; whether none is under way any more.
  bool progress() { return gather_.test(); }
  /// Waits for one that is under way.
  void settle() { gather_.wait(); }

  /// Before the first contribution of a micro-batch: zeroed memory for all gradients. May be called again.
  void begin_gradients();
  /// One more parameter is final in this micro-batch; whether all of them are, and a sum over copies is now under way.
  bool parameter_final();
  /// Waits for the sum that is under way.
  void finish_reduction();
  bool reducing() const { return reducing_; }
  bool reduced() { return reduction_.test(); }
  /// Whether finish_reduction() gives memory back.
  bool frees_gradients() const { return shards(2); }
  /// Waits for the rest of the step; throws unless all micro-batches became final.
  void finish_step();

 private:
  bool shards(int stage) const { return copies() > 1 && plan_.stage >= stage; }
  int copies() const { return groups_.reductions.size(); }
  Tensor owned_part(const Tensor& whole) const { return whole.view(owned_.first, {owned_.count}); }

  ParameterUnit& unit_;
  const CopyGroups& groups_;
  Plan plan_;
  Stream stream_;
  std::int64_t size_;                  // of flat memory, with padding for equal parts
  std::vector<std::int64_t> extents_;  // of every copy's part
  Range owned_;
  Tensor values_;  // kept: whole, or the owned part
  Tensor sum_;     // of owned gradients over micro-batches: part of the whole, or apart where that comes and goes
  std::int64_t finals_ = 0;  // parameters, in this micro-batch
  std::int64_t made_ = 0;    // micro-batches that are final, in this step
  std::int64_t summed_ = 0;  // those of them in sum_, where it is apart
  bool producing_ = false, reducing_ = false;
  Pending reduction_, gather_, gradient_gather_;
};

}  // namespace lyceum

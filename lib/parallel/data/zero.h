#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "parallel/comm/mesh.h"
#include "parallel/data/sharded_unit.h"

namespace lyceum {

/// The training memory of all units of this rank: replicated, or sharded over the ranks that hold copies. ZeRO stages 0
/// to 3 [Rajbhandari et al. 2020], see ShardedUnit. Sums of gradients overlap with the backward pass, and values are
/// gathered while other layers compute.
///
/// A layer consists of the units with the same ParameterUnit::layer(). In stage 3, the values of at most two layers are
/// unsharded at a time: the layer in use and the next one in the direction of the pass, if it is on this rank. In
/// stages 2 and 3, the gradients of at most two layers are unsharded (the current one of the backward pass and the one
/// before it), plus those of layers that still expect contributions.
///
/// The effective values of an adapted unit (ParameterUnit::Role) exist only while its layer is in use; stage 3 gathers
/// only the stored values of the next layer ahead. When the gradients of all parameters of an adapted unit are complete
/// for a micro-batch, the gradients of its adapters are computed from them and count as complete.
///
/// All ranks that hold copies must use the units in the same order. Buffers are replicated in every stage.
class Zero final : private UnitMemory {
 public:
  struct Options {
    int stage = 0;
    std::int64_t micro_batches = 1;  // per step
    DType type = DType::f32;         // type of the values; gradients have its accumulator type
    bool overlap = true;             // false: wait for every transfer at once, to measure the gain of overlap
  };
  /// Gives every unit its memory, zeroed. Collective over the mesh. `units` and `mesh` must outlive the object.
  Zero(std::span<ParameterUnit* const> units, const Mesh& mesh, const Stream& stream, const Options& options);
  ~Zero();
  Zero(const Zero&) = delete;
  Zero& operator=(const Zero&) = delete;

  /// Initialises all units, see ParameterUnit::initialize().
  void initialize(std::uint64_t seed);
  /// Returns a share for each unit, in the order of the units, with untrained units after all others.
  std::vector<UnitShare> shares() const;

  /// Records that a tape has made its last contribution to the parameter's gradient. Call once per parameter and
  /// micro-batch.
  void gradient_final(Parameter& parameter);
  /// Frees the effective values of adapted units. Call before a step, so that a recorded step (RecordedWork) always
  /// begins in the same state; validation leaves values of its last layers.
  void release_adapted();
  /// Sets Options::micro_batches of the following steps. Call between steps.
  void set_micro_batches(std::int64_t micro_batches);
  /// Collective over the mesh. Waits for all sums over copies, after which the shares hold the gradients of this step.
  /// Throws if a unit's gradient was not complete in every micro-batch.
  void finish_gradients();
  /// Call after the values of the shares were updated or loaded. Starts to send them to the other copies.
  void values_changed();
  /// Waits for the transfers that values_changed() started. In stages 0 to 2, every unit then has all its values; in
  /// stage 3, values are gathered when they are needed.
  void await_values();

  /// Returns the bytes that this rank has passed to the reductions and gathers of the units of one group of parameters.
  ProcessGroup::Traffic traffic(ParameterUnit::Group group) const;

 private:
  using Layer = std::vector<ShardedUnit*>;
  void need_values(ParameterUnit& unit, Pass pass) override;
  void need_gradients(ParameterUnit& unit) override;
  /// Called when a pass first needs values of a layer. Starts to gather this layer and the next one in the direction of
  /// the pass, and releases all others.
  void enter(int layer, Pass pass);
  /// Returns the units that hold the adapters of an adapted unit, and of no other; none for other units.
  std::vector<ShardedUnit*> adapters_of(const ShardedUnit& unit) const;
  /// Computes the gradients of the adapters of an adapted unit, and frees its gradients.
  void pass_on_gradients(ShardedUnit& unit);
  /// Advances all transfers, and finishes reductions that have completed.
  void progress();
  /// True if the unit's reduction is waited for at a fixed point of the backward pass: if waiting frees memory, so that
  /// the peak does not depend on timing, or if all operations must have the same order on all ranks. Otherwise
  /// progress() finishes the reduction as soon as it is complete, which in stage 0 starts the gather of the sums.
  bool at_fixed_point(const ShardedUnit& unit) const { return one_order_ || unit.frees_gradients(); }
  /// Waits for the reductions with a fixed point, except those of two layers.
  void finish_sums_except(int layer, int other);

  Stream stream_;
  std::map<ParameterUnit::Group, CopyGroups> groups_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::vector<ParameterUnit*> buffers_;
  std::unordered_map<const ParameterUnit*, ShardedUnit*> by_unit_;
  std::map<int, Layer> layers_;
  bool overlap_;
  bool one_order_;  // operations of all groups must start in the same order on all ranks, as NCCL requires
  int used_layer_ = -1, gradient_layer_ = -1;
  Pass pass_ = Pass::forward;
  std::deque<ShardedUnit*> reducing_;  // units whose reduction is in flight, oldest first
};

}  // namespace lyceum

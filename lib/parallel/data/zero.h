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

/// Training memory of all units of this rank, replicated or sharded over the ranks that hold copies: ZeRO 0 to 3
/// [Rajbhandari et al. 2020], see ShardedUnit. Sums of gradients overlap with backward; values come back while
/// other layers compute.
///
/// A layer is the units with the same ParameterUnit::layer(). In stage 3 values of two neighbouring layers are here at
/// a time, the one in use and the next one in the direction of the pass, if this rank has that. In stages 2 and 3
/// gradients of at most two layers are whole, the one that backward is in and the one before it, besides layers that
/// are not final yet.
///
/// Units are used in the same order on all ranks that hold copies of them. Buffers are whole on all of these in every
/// stage.
class Zero final : private UnitMemory {
 public:
  struct Options {
    int stage = 0;
    std::int64_t micro_batches = 1;  // a step
    DType type = DType::f32;         // of the values; gradients are in its accumulator type
    bool overlap = true;             // false: every transfer is awaited where it begins, to measure what overlap gains
  };
  /// Gives every unit its memory, zeroed. `units` and `mesh` must outlive this.
  Zero(std::span<ParameterUnit* const> units, const Mesh& mesh, const Stream& stream, const Options& options);
  ~Zero();
  Zero(const Zero&) = delete;
  Zero& operator=(const Zero&) = delete;

  /// As ParameterUnit::initialize().
  void initialize(std::uint64_t seed);
  /// A share a unit, in the order of the units, those that are not trained behind all others.
  std::vector<UnitShare> shares() const;

  /// One tape has made its last contribution to the parameter; once a micro-batch and parameter.
  void gradient_final(Parameter& parameter);
  /// Waits for all sums: shares hold this step's gradients. Throws where a unit was not final in every micro-batch.
  void finish_gradients();
  /// After an update, or a load, of the shares' values: all ranks get them, in the background.
  void values_changed();
  /// Waits for them. In stages 0 to 2 every unit then holds all its values.
  void await_values();

  /// Bytes that this rank handed to sums and gathers of units of this kind so far.
  ProcessGroup::Traffic traffic(ParameterUnit::Group group) const;

 private:
  using Layer = std::vector<ShardedUnit*>;
  void need_values(ParameterUnit& unit, Pass pass) override;
  void need_gradients(ParameterUnit& unit) override;
  void enter(int layer, Pass pass);
  void progress();
  /// Whether its sum is waited for at a fixed point of backward: what frees memory is, so that peaks do not depend on
  /// timing. Another's next transfer starts as soon as it is seen to be done.
  bool at_fixed_point(const ShardedUnit& unit) const { return one_order_ || unit.frees_gradients(); }
  /// Waits for such sums, but for those of two layers.
  void finish_sums_except(int layer, int other);

  Stream stream_;
  std::map<ParameterUnit::Group, CopyGroups> groups_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::vector<ParameterUnit*> buffers_;
  std::unordered_map<const ParameterUnit*, ShardedUnit*> by_unit_;
  std::map<int, Layer> layers_;
  bool overlap_;
  bool one_order_;  // of the operations of all groups, on all ranks: NCCL wants it
  int used_layer_ = -1, gradient_layer_ = -1;
  Pass pass_ = Pass::forward;
  std::deque<ShardedUnit*> reducing_;  // oldest first
};

}  // namespace lyceum

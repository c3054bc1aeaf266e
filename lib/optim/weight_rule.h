#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "config/config.h"
#include "core/dtype.h"
#include "core/range.h"
#include "kernels/head_scaling.h"
#include "model/tensor_pattern.h"

namespace lyceum {

/// The rule that updates an element of a weight: kernels/adamw.h and kernels/muon.h have the formulas.
enum class WeightRule : std::uint8_t { adamw, muon };

/// Returns the names of the states that a rule keeps for each weight; in checkpoints they are optimizer/NAME/WEIGHT.
/// Every rule has at least one state.
std::span<const std::string_view> states_of(WeightRule rule);

/// Assigns rules to logical tensors. With optim.rule = adamw, AdamW updates all. With muon, Muon updates every matrix
/// of a block or of a module of multi-token prediction, that is, every tensor with two dimensions under "model/layers/"
/// or "model/mtp/", except those that optim.adamw_only names.
class RuleAssignment {
 public:
  /// Throws a usage Error if a pattern of optim.adamw_only contains a range of rows.
  explicit RuleAssignment(const OptimConfig& optim);
  /// Returns the rule of a logical tensor.
  WeightRule rule_of(const std::string& name, const Shape& shape) const;
  /// Returns the patterns of optim.adamw_only; none with optim.rule = adamw.
  const std::vector<TensorPattern>& adamw_only() const { return adamw_only_; }
  /// True if updates scale the weights of heads (optim.qk_clip).
  bool scales_heads() const { return scales_heads_; }

 private:
  bool muon_, scales_heads_;
  std::vector<TensorPattern> adamw_only_;
};

/// Throws a usage Error if a pattern of optim.adamw_only matches no tensor of the model, or contains a range of rows.
/// Does nothing with optim.rule = adamw. `config` must be resolved.
void require_ruled_tensors(const Config& config);

/// A range of a unit's flat memory whose elements have the same rule, weight decay and HeadScaling. It begins at the
/// end of the previous range (0 for the first).
struct UpdateRange {
  std::int64_t end;
  bool decays;
  WeightRule rule;
  HeadScaling heads = {};  // elements count from the first one of the unit
  bool operator==(const UpdateRange&) const = default;
};
/// Returns the ranges of the whole unit in order. Neighbours differ. Frozen elements are not decayed. Padding belongs
/// to the tensor before it.
std::vector<UpdateRange> update_ranges(const RuleAssignment& rules, const ParameterUnit& unit);

/// A range of elements of a unit that have one rule.
struct RuleRange {
  Range range;
  WeightRule rule;
};
/// Returns the parts of `range` by rule, in order. `updates`: the result of update_ranges(). Elements after the last
/// update range, which pad a unit for equal parts, belong to the last one.
std::vector<RuleRange> rule_ranges(std::span<const UpdateRange> updates, const Range& range);

/// Returns the number of elements of these ranges whose rule keeps more than `state` states.
std::int64_t elements_with_state(std::span<const RuleRange> ranges, std::size_t state);

/// Returns the type of the states of weights of type `type`: bf16 with optim.moments = bf16, else accumulator
/// precision.
DType state_type(const OptimConfig& optim, DType type);
/// Returns the bytes of optimizer memory per weight of type `type`: states, and a master unless the weight itself has
/// accumulator precision.
std::int64_t state_bytes(WeightRule rule, const OptimConfig& optim, DType type);
/// Returns the bytes per weight of type `type` of the moving average of optim.ema; 0 without.
std::int64_t average_bytes(const OptimConfig& optim, DType type);
/// Returns the bytes that an update reads and writes per weight of type `type`: gradient, weight, master and states,
/// without an average. For Muon, also the momentum's update, which reads and writes gradient and momentum, and packing
/// and unpacking of the matrices; not their products and exchange, see muon_load().
std::int64_t update_bytes(WeightRule rule, const OptimConfig& optim, DType type);

}  // namespace lyceum

#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/config.h"
#include "parallel/data/sharded_unit.h"

namespace lyceum {

/// AdamW over this rank's shares of parameter units: two moments and, where the weights are not kept in accumulator
/// precision, master weights.
class Optimizer {
 public:
  Optimizer(const OptimConfig& config, Stream stream, std::vector<UnitShare> shares);

  /// Applies gradients times `gradient_scale`; counts the updates for bias correction.
  void step(double lr, double gradient_scale);
  /// The parameter nearest the loss whose gradient is not finite in this rank's shares, or empty: backward carries NaN
  /// from there on.
  std::string nonfinite_gradient() const;
  std::span<const UnitShare> shares() const { return shares_; }

  /// Masters from the weights: after they are initialised.
  void adopt_weights();
  /// Updates made so far; part of a checkpoint.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  /// f32 values and both moments of what this rank owns, twins aside: the ranks' pieces cover the model once. Views:
  /// valid until step().
  std::vector<CheckpointPiece> pieces() const;
  /// Fills masters and moments, and the weights of the shares from them.
  void load(const CheckpointReader& reader);

 private:
  struct State {
    Tensor master, exp_avg, exp_avg_sq;  // flat, of the updated range
    struct Run {
      FlatRange range;  // of the updated range: neighbours with the same decay, updated in one go
      bool decay;
    };
    std::vector<Run> runs;
  };
  State make_state(const UnitShare& share) const;

  OptimConfig config_;
  Stream stream_;
  std::vector<UnitShare> shares_;
  std::vector<State> states_;  // a share each
  std::int64_t updates_ = 0;
};

/// Fills the weights alone, for evaluation and generation.
void load_weights(const CheckpointReader& reader, const Stream& stream, std::span<ParameterUnit* const> units);

}  // namespace lyceum

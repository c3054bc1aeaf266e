#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "io/checkpoint.h"
#include "io/config.h"

namespace lyceum {

/// AdamW over parameter units: two moments and, where the weights are not kept in accumulator precision, master
/// weights.
class Optimizer {
 public:
  Optimizer(const OptimConfig& config, Stream stream, std::span<const std::unique_ptr<ParameterUnit>> units);

  /// Σ g² over the units of one kind, in double. NaN and infinity show.
  double gradient_sum_of_squares(ParameterUnit::Group group) const;
  /// Applies gradients times `gradient_scale`; counts the updates for bias correction.
  void step(double lr, double gradient_scale);
  void clear_gradients();
  /// The parameter nearest the loss whose gradient is not finite, or empty: backward carries NaN from there on.
  std::string nonfinite_gradient() const;

  /// Masters from the weights: after initialize().
  void adopt_weights();
  /// Updates made so far; part of a checkpoint.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  /// f32 values and both moments of every piece of every unit for which `owns` says yes. Views: valid until step().
  std::vector<CheckpointPiece> pieces(const std::function<bool(const ParameterUnit&)>& owns) const;
  /// Fills weights, masters and moments of all units.
  void load(const CheckpointReader& reader);

 private:
  struct State {
    ParameterUnit* unit;
    Tensor master, exp_avg, exp_avg_sq;
    struct Run {
      std::int64_t first, count;  // neighbours with the same decay, updated in one go
      bool decay;
    };
    std::vector<Run> runs;
  };

  OptimConfig config_;
  Stream stream_;
  std::vector<State> states_;
  std::int64_t updates_ = 0;
};

/// Fills the weights alone, for evaluation and generation.
void load_weights(const CheckpointReader& reader, const Stream& stream,
                  std::span<const std::unique_ptr<ParameterUnit>> units);

}  // namespace lyceum

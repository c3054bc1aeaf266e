#pragma once

#include <cstdint>
#include <string>

namespace lyceum {

/// Whether a run trains as it did so far. A checkpoint is *sound* that was saved when
///   - at most one of the last `window` steps was skipped because a number was not finite: one alone does no harm,
///   - the last update was less than half as large as the weights that it made, and
///   - the loss, smoothed over `window` steps, was at most `margin` above the lowest such loss of the run.
/// It goes by numbers that all ranks agree on, so they agree on this.
struct Soundness {
  static constexpr std::int64_t window = 10;  // steps
  static constexpr double margin = 1;         // nats a token

  std::int64_t steps = 0;           // that were not skipped
  std::int64_t left_out = 0;        // of the last `window` steps: bit i is set if the one i steps ago was skipped
  double smoothed = 0, lowest = 0;  // loss in nats a token: mean of the first `window` steps, then exponential
  double update = 0;                // norm of the last update over that of the weights

  void leave_out();
  void add(double loss, double update_norm, double weight_norm);
  /// Why a checkpoint of now is not sound, or empty.
  std::string problem() const;
};

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <string>

namespace lyceum {

/// Tracks the losses and norms of a run to decide whether it still trains as well as before. A checkpoint is *sound*
/// if, when it was saved,
///   - at most one of the last `window` steps was skipped because a number was not finite (a single one is harmless),
///   - the norm of the last update was at most half of the norm of the updated weights, and
///   - the loss, smoothed over `window` steps, was at most `margin` above the lowest such loss of the run.
/// The losses are equal on all ranks. The norms may differ if copies of weights differ, so ranks must agree on a
/// decision that depends on problem().
struct Soundness {
  static constexpr std::int64_t window = 10;  // steps
  static constexpr double margin = 1;         // nats per token

  std::int64_t steps = 0;           // steps that were not skipped
  std::int64_t left_out = 0;        // bit i, for i < window, is set if the step i steps ago was skipped
  double smoothed = 0, lowest = 0;  // loss in nats per token: the mean of the first `window` steps, then a moving
                                    // average; and its minimum
  double update = 0;                // norm of the last update over the norm of the weights

  /// Adds a step that was skipped because a number was not finite.
  void add_skipped();
  /// Adds a step. `loss`: nats per token.
  void add(double loss, double update_norm, double weight_norm);
  /// Returns why a checkpoint saved now is not sound, or an empty text.
  std::string problem() const;
};

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "config/optim.h"
#include "optim/step_numbers.h"

namespace lyceum {

/// The losses and gradient norms of the last steps that made an update, from which follow the limits of the next step.
/// All values are equal on all ranks, and so are the limits.
///
/// Skipped steps are not added. A skipped value lies beyond the limits, so one that was added would raise the deviation
/// and with it the limits of the following steps: the second of two equal outliers would pass.
struct RecentSteps {
  std::deque<double> losses, norms;  // oldest first, equally many; empty if optim.skip_above is 0

  /// Adds a step that made an update, and removes the oldest one if there are more than optim.skip_window.
  void add(double loss, double norm, const OptimConfig& optim);
  /// Returns mean + optim.skip_above · standard deviation of the last optim.skip_window losses and norms, with n − 1
  /// degrees of freedom. The limits are infinite if optim.skip_above is 0 or there are fewer steps.
  StepLimits limits(const OptimConfig& optim) const;

  bool operator==(const RecentSteps&) const = default;
};

/// Describes which of loss and norm are above their limits: "loss 9.1 is above 4.2".
std::string outlier_text(double loss, double norm, const StepLimits& limits);

}  // namespace lyceum

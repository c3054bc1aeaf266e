#include "train/soundness.h"

#include <fmt/format.h>

#include <algorithm>

namespace lyceum {

namespace {

/// A loss counts as no more than this above the lowest, in nats, so that a run that recovers is soon sound again.
constexpr double most_above = 20;
constexpr double largest_update = 0.5;

}  // namespace

void Soundness::add(double loss, double update_norm, double weight_norm) {
  ++steps;
  since_left_out = std::min(since_left_out + 1, window);
  update = update_norm / weight_norm;
  if (steps == 1) smoothed = lowest = loss;
  smoothed += (std::min(loss, lowest + most_above) - smoothed) / static_cast<double>(std::min(steps, window));
  lowest = std::min(lowest, smoothed);
}

std::string Soundness::problem() const {
  if (since_left_out < window) return fmt::format("one of the last {} steps was left out", window);
  if (!(update <= largest_update)) return fmt::format("its last update was {:.2g} times its weights", update);
  if (!(smoothed <= lowest + margin)) {
    return fmt::format("the loss was {:.2f}, smoothed, and had been {:.2f}", smoothed, lowest);
  }
  return {};
}

}  // namespace lyceum

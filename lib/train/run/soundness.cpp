#include "train/run/soundness.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/real_text.h"

namespace lyceum {

namespace {

/// A loss is capped at this many nats per token above the lowest smoothed loss. Otherwise one huge loss would keep a
/// run unsound for long after it has recovered.
constexpr double most_above = 20;
constexpr double largest_update = 0.5;

/// Returns Soundness::left_out after one more step that was not skipped.
std::int64_t next(std::int64_t left_out) { return (left_out << 1) & ((std::int64_t{1} << Soundness::window) - 1); }

}  // namespace

void Soundness::add_skipped() { left_out = next(left_out) | 1; }

void Soundness::add(double loss, double update_norm, double weight_norm) {
  ++steps;
  left_out = next(left_out);
  update = update_norm / weight_norm;
  if (steps == 1) smoothed = lowest = loss;
  smoothed += (std::min(loss, lowest + most_above) - smoothed) / static_cast<double>(std::min(steps, window));
  lowest = std::min(lowest, smoothed);
}

std::string Soundness::problem() const {
  const int steps_left_out = std::popcount(static_cast<std::uint64_t>(left_out));
  if (steps_left_out > 1) return fmt::format("{} of the last {} steps were skipped", steps_left_out, window);
  if (!(update <= largest_update)) return "its last update was " + real_text(update, ".2g") + " times its weights";
  if (!(smoothed <= lowest + margin)) {
    return fmt::format("the smoothed loss was {}, up from {}", real_text(smoothed, ".2f"), real_text(lowest, ".2f"));
  }
  return {};
}

}  // namespace lyceum

#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/clock.h"

namespace lyceum {

/// Seconds per call: median and spread over the rounds.
struct Timing {
  double median = 0, spread = 0;  // spread: (third quartile - first quartile) / median
};

/// Measures work(round). The argument counts calls, so that the caller can rotate buffers: operands should not be in a
/// cache that a real run would have used otherwise. There is one warm-up call per three rounds. Calls of short work are
/// batched, so that a batch lasts at least `batch_seconds`.
template <class Work>
Timing measure(Work&& work, int rounds = 9, double batch_seconds = 0.01) {
  std::size_t call = 0;
  const auto seconds = [&](std::size_t calls) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < calls; ++i) work(call++);
    return seconds_since(start);
  };
  seconds(1);
  double once = seconds(1);
  for (int i = 0; i < rounds / 3; ++i) once = std::min(once, seconds(1));
  const auto batch = static_cast<std::size_t>(std::clamp(batch_seconds / std::max(once, 1e-9), 1.0, 1e6));
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(seconds(batch) / static_cast<double>(batch));
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  return {median, (times[times.size() * 3 / 4] - times[times.size() / 4]) / median};
}

}  // namespace lyceum

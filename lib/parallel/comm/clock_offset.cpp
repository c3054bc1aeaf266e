#include "parallel/comm/clock_offset.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <limits>

namespace lyceum {

namespace {

constexpr std::size_t clock_rounds = 16;

}  // namespace

std::int64_t monotonic_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

ClockOffset offset_between(const BarrierTimes& first, const BarrierTimes& own, bool same_machine) {
  std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
  for (std::size_t round = 0; round < own.left.size(); ++round) {
    low = std::max(low, first.entered[round] - own.left[round]);
    high = std::min(high, first.left[round] - own.entered[round]);
  }
  if (same_machine && low <= 0 && high >= 0) return {};
  const std::int64_t middle = low + (high - low) / 2;
  return {.offset = middle, .error = std::max(high - middle, middle - low)};
}

ClockOffset measure_clock_offset(const ProcessGroup& group, bool same_machine) {
  if (group.size() == 1) return {};
  std::array<std::int64_t, 2 * clock_rounds> first{};  // entered, then left
  const std::span entered = std::span(first).first(clock_rounds), left = std::span(first).last(clock_rounds);
  group.barrier();  // so that the first round measures no earlier delay
  for (std::size_t round = 0; round < clock_rounds; ++round) {
    entered[round] = monotonic_nanoseconds();
    group.barrier();
    left[round] = monotonic_nanoseconds();
  }
  const std::array<std::int64_t, 2 * clock_rounds> own = first;
  group.broadcast(std::as_writable_bytes(std::span(first)), 0);
  const std::span mine(own);
  return offset_between({entered, left}, {mine.first(clock_rounds), mine.last(clock_rounds)},
                        same_machine || group.rank() == 0);
}

}  // namespace lyceum

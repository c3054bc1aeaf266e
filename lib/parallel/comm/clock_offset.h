#pragma once

#include <cstdint>
#include <span>

#include "parallel/comm/process_group.h"

namespace lyceum {

/// The difference between the monotonic clocks of two ranks' machines, in nanoseconds: add `offset` to a time of this
/// rank to get the time on the clock of rank 0. The true difference is within ± `error`, if both clocks run evenly.
struct ClockOffset {
  std::int64_t offset = 0, error = 0;
};

/// The times at which a rank entered and left one or more barriers, in nanoseconds of its clock.
struct BarrierTimes {
  std::span<const std::int64_t> entered, left;
};

/// Returns the offset of the clock of `own` to that of `first`, from the times of the same barriers. No rank leaves a
/// barrier before all have entered it, so each barrier bounds the offset on both sides:
///   first.entered − own.left ≤ offset ≤ first.left − own.entered.
/// The result is the middle of the tightest bounds. `same_machine`: both ranks are believed to read the same clock. The
/// result is then 0, unless the bounds exclude 0, which shows that two machines have the same name.
ClockOffset offset_between(const BarrierTimes& first, const BarrierTimes& own, bool same_machine);

/// Collective over the group. Measures the offset of this rank's clock to that of rank 0 by 16 barriers.
/// `same_machine`: true if this rank is on the machine of rank 0.
ClockOffset measure_clock_offset(const ProcessGroup& group, bool same_machine);

/// Returns the monotonic time of this machine in nanoseconds, on the clock of monotonic_seconds().
std::int64_t monotonic_nanoseconds();

}  // namespace lyceum

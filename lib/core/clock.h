#pragma once

#include <chrono>

namespace lyceum {

using Clock = std::chrono::steady_clock;

/// Returns the seconds since `start`.
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Returns the seconds since 1970 by the system's clock. For timestamps in logs, not for durations.
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lyceum

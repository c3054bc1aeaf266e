#pragma once

#include "parallel/comm/process_group.h"

namespace lyceum {

/// Seconds after which a test gives up other ranks: many, as it may share two cores with dozens of them.
constexpr double patience = 300;

/// All ranks that a test runs on.
inline ProcessGroup test_world() { return ProcessGroup::world(patience); }

/// Returns all ranks as a world whose waits last at most `seconds`, but which took the time it needed to be made.
inline ProcessGroup hasty_world(double seconds) {
  ProcessGroup world = test_world();
  world.set_timeout(seconds);
  return world;
}

}  // namespace lyceum

#pragma once

#include "parallel/comm/process_group.h"

namespace lyceum {

/// Timeout in seconds for waits in tests. Long, since a test may share two cores with dozens of others.
constexpr double patience = 300;

/// Returns the group of all ranks of this program.
inline ProcessGroup test_world() { return ProcessGroup::world(patience); }

/// Returns the group of all ranks with a timeout of `seconds` for waits. Creating the group may take longer.
inline ProcessGroup hasty_world(double seconds) {
  ProcessGroup world = test_world();
  world.set_timeout(seconds);
  return world;
}

}  // namespace lyceum

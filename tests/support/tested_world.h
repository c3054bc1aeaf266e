#pragma once

#include "parallel/comm/process_group.h"

namespace lyceum {

/// Seconds after which a test gives up other ranks: many, as it may share two cores with dozens of them.
constexpr double patience = 300;

/// All ranks that a test runs on.
inline ProcessGroup test_world() { return ProcessGroup::world(patience); }

}  // namespace lyceum

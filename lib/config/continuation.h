#pragma once

#include <string_view>
#include <vector>

#include "config/binding.h"
#include "config/config.h"
#include "config/feature.h"

namespace lyceum {

/// Returns the role of a key; `operation` if there is no such key.
KeyRole role_of(std::string_view key);

/// Returns the configuration with every key that has no effect at its default, and of two ways to write the same one.
/// `config` must be resolved.
Config effective(Config config);

/// A key that differs in effect.
struct Change : Difference {
  KeyRole role;
};
/// Returns the keys that differ in effect and whose role is not `operation`, in the order of the configuration. Both
/// must be resolved. optim.schedule_steps is not among them: 0 means the length in the checkpoint.
std::vector<Change> changes(const Config& before, const Config& now);

}  // namespace lyceum

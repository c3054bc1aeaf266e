#pragma once

#include <string_view>
#include <vector>

#include "config/binding.h"
#include "config/config.h"

namespace lyceum {

/// The effect of a changed key on a run that continues from its checkpoint.
enum class KeyRole {
  operation,  // the same run: where it runs, what it prints, writes and checks
  reported,   // the same run, but a reader of its log must know
  tuning,     // the same run that trains differently from now on; of a finished run, another run
  identity    // another run: other seed, data, model or objective
};

KeyRole role_of(std::string_view key);

/// The configuration with every key that has no effect at its default, and of two ways to write the same one. `config`
/// must be resolved.
Config effective(Config config);

/// A key that differs in effect.
struct Change : Difference {
  KeyRole role;
};
/// The keys that differ in effect and whose role is not `operation`, in the order of the configuration. Both must be
/// resolved. optim.schedule_steps is not among them: 0 means the length in the checkpoint.
std::vector<Change> changes(const Config& before, const Config& now);

}  // namespace lyceum

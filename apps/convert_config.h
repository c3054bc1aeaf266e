#pragma once

#include <cstdint>
#include <string>

#include "apps/commands.h"
#include "config/binding.h"

namespace lyceum {

/// Returns the configuration of a converted run: the checkpoint's configuration `own` without its mesh and without keys
/// that refer to its tensors, changed by the arguments, with run.dir = `out` and without training stages: if the
/// arguments name a file with stages, with the values of the stage of the checkpoint's last step, `step`. `given`: the
/// configuration from the arguments alone, whose origins the result has. Throws a usage Error if the arguments set
/// run.dir.
LoadedConfig converted_config(LoadedConfig own, std::int64_t step, const std::string& out, const Arguments& arguments,
                              const LoadedConfig& given);

}  // namespace lyceum

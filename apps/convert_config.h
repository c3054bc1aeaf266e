#pragma once

#include <string>

#include "apps/commands.h"
#include "config/binding.h"

namespace lyceum {

/// Returns the configuration of a converted run: the checkpoint's configuration `own` without its mesh and without keys
/// that refer to its tensors, changed by the arguments, with run.dir = `out`. `given`: the configuration from the
/// arguments alone, whose origins the result has. Throws a usage Error if the arguments set run.dir.
LoadedConfig converted_config(LoadedConfig own, const std::string& out, const Arguments& arguments,
                              const LoadedConfig& given);

}  // namespace lyceum

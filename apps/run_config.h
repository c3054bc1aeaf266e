#pragma once

#include <optional>

#include "apps/commands.h"
#include "io/checkpoint.h"
#include "io/config_binding.h"

namespace lyceum {

/// The arguments of a command that has a configuration: loaded, resolved for this world. Answers --help, --list-keys
/// and --print-config itself: then there is nothing to run.
std::optional<LoadedConfig> configure(const MpiSession& session, const Arguments& arguments, const char* help);

/// A checkpoint named by the user: itself, or a directory of checkpoints (the one that LATEST names). Opens it.
CheckpointReader open_checkpoint(const std::string& path);

/// The configuration that a checkpoint was made with, for one that reads it on this world: `changes` (--section.key=…)
/// over it, the mesh of the reader, nothing resumed.
Config checkpoint_config(const CheckpointReader& reader, const Arguments& changes, int world);

}  // namespace lyceum

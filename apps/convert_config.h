#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "config/binding.h"
#include "config/config.h"
#include "io/run/lock.h"
#include "parallel/comm/mpi_session.h"

namespace lyceum {

/// Returns the configuration of a converted run: the checkpoint's configuration `own` without its mesh and without keys
/// that refer to its tensors, changed by the arguments, with run.dir = `out` and without training stages: if the
/// arguments name a file with stages, with the values of the stage of the checkpoint's last step, `step`. `given`: the
/// configuration from the arguments alone, whose origins the result has. Throws as require_of_new_run() does, and a
/// usage Error if the command line has a stage.
LoadedConfig converted_config(LoadedConfig own, std::int64_t step, const std::string& out, const Arguments& arguments,
                              const LoadedConfig& given);
/// Returns a line for the user if the arguments of converted_config() name a file with stages, else "".
std::string left_out_stages(const LoadedConfig& given, std::int64_t step, const std::string& out);

/// Throws a usage Error if the arguments set run.dir or checkpoint.resume, which a conversion determines.
void require_of_new_run(const LoadedConfig& given);
/// Collective. Locks the folder of a new run. Throws as lock_run_directory() and, once it is locked, as
/// require_no_run() do.
std::unique_ptr<RunLock> lock_new_run(const Config& config, const MpiSession& session);

}  // namespace lyceum

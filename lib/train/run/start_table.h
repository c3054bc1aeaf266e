#pragma once

#include <string>
#include <vector>

#include "train/setup/run_setup.h"

namespace lyceum {

/// The batch job, where there is one, and the table of ranks: rank, host, local rank, cores, memory, device; of more
/// than 32 ranks a row for each stretch of ranks on one host.
std::vector<std::string> start_lines(const RunSetup& setup);

}  // namespace lyceum

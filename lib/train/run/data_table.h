#pragma once

#include <string>
#include <vector>

#include "train/setup/run_setup.h"

namespace lyceum {

/// What a run reads: a line of one source, a table of the sources of a mixture; how documents are packed.
/// Epochs are those over the whole run.
std::vector<std::string> data_lines(const Config& config, const RunData& data);

}  // namespace lyceum

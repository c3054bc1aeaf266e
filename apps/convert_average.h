#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/convert_text.h"
#include "config/binding.h"

namespace lyceum {

constexpr const char* average = "average";

/// The arguments of `lyceum convert average`.
struct Averaging {
  std::vector<std::string> sources;    // checkpoints, or directories of checkpoints or of runs
  std::optional<std::string> weights;  // of --weights: numbers separated by commas; null: all are 1
  std::string out;                     // folder of the new run
  bool ema;                            // read the moving averages of the weights
  bool dry_run;                        // write nothing
};

/// Implements `lyceum convert average`. Collective over the session. Returns the exit code. `arguments`: the arguments
/// that belong to the configuration. `given`: the configuration from these arguments alone. Throws a usage Error if the
/// weights are not as many numbers as there are checkpoints or their sum is 0, and as require_same_model() does; and a
/// bad_input Error if a checkpoint cannot be read.
int average_checkpoints(const MpiSession& session, const Averaging& averaging, const Arguments& arguments,
                        const LoadedConfig& given, const PrintOnce& print_once);

}  // namespace lyceum

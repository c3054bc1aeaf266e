#pragma once

#include "model/routing/expert_places.h"
#include "train/setup/run_setup.h"

/// Tables of the start of a run, as lines of the console.
namespace lyceum {

/// The batch job, if there is one, and the table of ranks: rank, host, local rank, cores, memory, device. With more
/// than 32 ranks, one row for each stretch of ranks on one host.
std::vector<std::string> rank_lines(const RunSetup& setup);

/// The data of a run: one line for a single source, else a table of the sources of a mixture; then how documents are
/// packed. Epochs are counted over the whole run.
std::vector<std::string> data_lines(const Config& config, const RunData& data);

/// The expert ranks of a placement: experts, their parameters and FLOPs over all layers, one row per rank (none
/// for more than 32 ranks), and how much busier than the mean the busiest rank is. Empty without experts.
std::vector<std::string> placement_lines(const Config& config, std::span<const MixturePlacement> layers,
                                         std::span<const ExpertLoad> measured);

}  // namespace lyceum

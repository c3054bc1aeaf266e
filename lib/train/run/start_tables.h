#pragma once

#include "model/routing/expert_placements.h"
#include "train/setup/run_setup.h"

/// The tables that a run prints when it starts, as lines of the console.
namespace lyceum {

/// Returns lines with the batch job, if there is one, the table of ranks: rank, host, local rank, cores, threads,
/// memory, device; and, with NCCL on several hosts, the network devices that it uses. With more than 32 ranks,
/// consecutive ranks that have the same host, threads, memory and device share a row.
std::vector<std::string> rank_lines(const RunSetup& setup);

/// Describes the training data: one line for a single source, or a table of several sources; then, for sources with
/// packed documents, a line on the packing. Epochs are those of `steps` steps.
std::vector<std::string> data_lines(const Config& config, const RunData& data, std::int64_t steps);

/// Describes the training stages: one line for each, with its steps and what it changes. Empty if there is one.
std::vector<std::string> stage_lines(const Config& config);
/// Returns the values of the keys that a stage after the first sets or derives: "batch.global = 16, optim.lr = 0.001".
std::string stage_changes_text(const Config& config, int stage);

/// Describes a placement of experts: a table with one row per expert rank (omitted for more than 32 ranks) of its
/// experts, their parameters and their FLOPs over all layers, and a line on how much busier than the mean the busiest
/// rank is. `layers`: the placement of each mixture. `measured`: the load of each mixture; empty: an even load is
/// assumed. `recorded`: true if the placement is that of a checkpoint, instead of parallel.placement. Empty without
/// experts.
std::vector<std::string> placement_lines(const Config& config, std::span<const MixturePlacement> layers,
                                         std::span<const ExpertLoad> measured, bool recorded = false);

}  // namespace lyceum

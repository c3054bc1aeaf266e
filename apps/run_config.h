#pragma once

#include <optional>

#include "apps/commands.h"
#include "config/binding.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/tokenizer/tokenizer.h"
#include "model/staged_model.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// Returns a command's configuration, checked and resolved for this world. If the arguments contain --list-keys or
/// --print-config, prints and returns nothing; the command is then finished. `first_stage`: training stages before it
/// are past, and may be impossible on these ranks. Throws a usage Error with all mistakes.
std::optional<LoadedConfig> configure(const MpiSession& session, LoadedConfig loaded, int first_stage = 1);

/// Replaces the stages of a configuration by the values of the stage that makes step `step`. Keys on the command line
/// of `given` keep their values.
void take_stage(LoadedConfig& loaded, std::int64_t step, const LoadedConfig& given = {});

/// Returns the configuration stored in a checkpoint, that of the training stage of its last step. Throws a bad_input
/// Error if this build cannot read it.
LoadedConfig config_of(const CheckpointReader& reader);

/// Returns config_of(), without adapters, for a command that reads only weights: if the checkpoint has adapters, the
/// reader merges them into its weights from now on. Throws a bad_input Error if they do not match the configuration.
LoadedConfig config_of_merged(CheckpointReader& reader);

/// Returns the configuration with defaults for the keys that the original run chose for its machine (parallel.*,
/// run.device, batch.micro), since any mesh can read a checkpoint.
LoadedConfig without_mesh(LoadedConfig loaded);

/// A checkpoint and the configuration with which this world reads it.
struct CheckpointRun {
  CheckpointReader reader;
  Config config;              // resolved
  Config own;                 // the configuration stored in the checkpoint
  std::int64_t global_batch;  // batch.global before it was rounded up to the number of ranks
};
/// Opens a checkpoint for reading. `path` names a checkpoint, a directory of checkpoints or a run's directory (the
/// checkpoint in LATEST is opened); if empty, the arguments must configure the run. The configuration is the
/// checkpoint's without its mesh, overridden by the arguments, with these exceptions:
///   - If the arguments name a file with training stages, the values are those of the stage of the checkpoint's step.
///   - data.tokenizer is the checkpoint's own, if it has one; another one is a bad_input Error.
///   - batch.global is rounded up to a multiple of the ranks, unless the command line has a batch.* key.
///   - There are no adapters, also in `own`: the reader has merged them into the weights.
///   - mtp.depth is 0, also in `own`: only training runs the modules of multi-token prediction.
///   - moe.top_k_start is 0, and so is moe.capacity_factor unless the command line has it.
/// If the arguments contain --list-keys or --print-config, prints and returns nothing; the command is then finished.
std::optional<CheckpointRun> configure_reader(const MpiSession& session, std::string path, const Arguments& arguments);
/// Returns the checkpoint's model with its weights, for evaluation. `setup` must be made from `run.config` and must
/// outlive the model. Throws as load_weights() does.
StagedModel weights_of(const CheckpointRun& run, const RunSetup& setup);
/// Returns the tokenizer of the checkpoint's run. Throws a usage Error if the run has none, and a bad_input Error if
/// the checkpoint does not contain it and the file data.tokenizer is not the one of the token files.
Tokenizer tokenizer_of(const CheckpointRun& run);

}  // namespace lyceum

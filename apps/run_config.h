#pragma once

#include <optional>

#include "apps/commands.h"
#include "config/binding.h"
#include "io/checkpoint/checkpoint.h"
#include "model/staged_model.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// The configuration of a command, checked and resolved for this world. Answers --list-keys and
/// --print-config itself: then there is nothing to run.
std::optional<LoadedConfig> configure(const MpiSession& session, LoadedConfig loaded);

/// The configuration that a checkpoint carries; a bad_input Error where there is none that this build can read.
LoadedConfig config_of(const CheckpointReader& reader);

/// What the run that wrote a checkpoint chose for its own machine goes back to its default: any mesh reads it.
LoadedConfig without_mesh(LoadedConfig loaded);

/// A checkpoint to be read on this world.
struct CheckpointRun {
  CheckpointReader reader;
  Config config;              // resolved
  Config own;                 // the one that it carries
  std::int64_t global_batch;  // batch.global before it was rounded up for the number of ranks
};
/// Opens `path`, a checkpoint, a directory of them or a run's (the one that LATEST names), or when empty the run that
/// the arguments configure. Its own configuration holds, without its mesh, where the arguments say nothing;
/// data.tokenizer is the one that the checkpoint brings, where it has one, and another one a bad_input Error;
/// batch.global is rounded up to what the ranks can share unless the command line has a batch.* key. Answers
/// --list-keys and --print-config itself: then there is nothing to run.
std::optional<CheckpointRun> configure_reader(const MpiSession& session, std::string path, const Arguments& arguments);
/// Its model with its weights, to be evaluated. `setup`: of its configuration; must outlive the model.
StagedModel weights_of(const CheckpointRun& run, const RunSetup& setup);

}  // namespace lyceum

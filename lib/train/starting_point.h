#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/config/config.h"
#include "model/expert_places.h"
#include "model/staged_model.h"
#include "parallel/data/zero.h"
#include "train/optimizer.h"
#include "train/pinned_gemms.h"
#include "train/run_report.h"
#include "train/run_setup.h"
#include "train/run_state.h"

namespace lyceum {

/// Collective: a name that no other run has, the same on all ranks.
std::string new_run_uuid(const ProcessGroup& world);

/// Where a run keeps its checkpoints.
std::filesystem::path checkpoint_root(const RunConfig& run);

/// What a run begins with: weights that are drawn, or a checkpoint. The checkpoint is chosen before there is a model,
/// since the placement of its experts may depend on the load in the checkpoint.
class StartingPoint {
 public:
  /// By checkpoint.resume; or the run's newest sound checkpoint, if there is one.
  enum class Choice { configured, sound };
  /// Collective. Mends the run's checkpoints and chooses. `config_text`: the resolved configuration as INI.
  StartingPoint(const Config& config, const std::string& config_text, const RunSetup& setup, RunReport& report,
                Choice choice = Choice::configured);

  bool is_checkpoint() const { return checkpoint_.has_value(); }
  /// As CheckpointReader::transformers(); empty where there is no checkpoint.
  std::string transformers() const { return checkpoint_ ? checkpoint_->transformers() : std::string(); }
  /// As the checkpoint measured it; empty where there is none.
  std::vector<ExpertLoad> expert_load() const;

  /// What is given its values.
  struct Parts {
    const RunData& data;
    const StagedModel& model;
    Zero& zero;
    Optimizer& optimizer;
    const PinnedGemms& gemms;
  };
  /// Collective. Draws the weights, or reads them; returns what the run knows of itself, but for its placement. Throws
  /// bad_input Errors where the checkpoint, or what is next to it, is of another run, model or data.
  RunState start(const Parts& parts) const;
  /// Does on rank 0 what a run that was killed while it saved left undone: LATEST names the checkpoint that this one
  /// resumes from, and old ones are gone.
  void tidy() const;

 private:
  void begin_anew(RunState& state, const Parts& parts) const;
  void resume(RunState& state, const Parts& parts) const;
  bool check_data(const std::vector<DataFiles>& files, const std::string& tokenizer) const;
  void tell_changes(RunState& state) const;
  /// `before`: what the checkpoint says of optim.* and run.steps.
  void keep_schedule(RunState& state, const Config& before) const;
  void tell_choices(const RunState& state, const Config& before) const;

  const Config& config_;
  const std::string& config_text_;
  const RunSetup& setup_;
  RunReport& report_;
  const std::string resume_;
  std::filesystem::path root_;
  std::optional<CheckpointReader> checkpoint_;
};

}  // namespace lyceum

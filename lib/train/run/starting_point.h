#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/continuation.h"
#include "io/checkpoint/checkpoint.h"
#include "model/routing/expert_places.h"
#include "optim/optimizer.h"
#include "parallel/data/zero.h"
#include "train/run/pinned_gemms.h"
#include "train/run/run_report.h"
#include "train/run/run_state.h"
#include "train/setup/run_setup.h"

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
  /// Collective. Repairs the run's checkpoints and chooses one. Throws a usage Error that names every key that differs,
  /// if the checkpoint is of another run than the configuration describes (config/continuation.h), or of another
  /// model; and if a checkpoint from elsewhere has no step to do, or the folder has checkpoints of another run.
  StartingPoint(const Config& config, const RunSetup& setup, RunReport& report, const RunData& data,
                Choice choice = Choice::configured);

  bool is_checkpoint() const { return checkpoint_.has_value(); }
  /// Returns CheckpointReader::transformers(), or an empty text if there is no checkpoint.
  std::string transformers() const { return checkpoint_ ? checkpoint_->transformers() : std::string(); }
  /// As the checkpoint measured it; empty where there is none.
  std::vector<ExpertLoad> expert_load() const;

  /// What is given its values.
  struct Parts {
    Zero& zero;
    Optimizer& optimizer;
    const PinnedGemms& gemms;
  };
  /// Collective. Draws the weights, or reads them; returns what the run knows of itself, but for its placement. Throws
  /// bad_input Errors if newer checkpoints are next to the checkpoint, or the data's files have changed.
  RunState start(const Parts& parts) const;
  /// Collective. Does on rank 0 what a run that was killed while it saved left undone: LATEST names the checkpoint that
  /// this one resumes from, and old ones are gone.
  void tidy() const;

 private:
  void begin_anew(RunState& state, const Parts& parts) const;
  void resume(RunState& state, const Parts& parts) const;
  /// True if the checkpoint was made from weights by lyceum convert: no run has trained it.
  bool is_new() const { return checkpoint_->header().step == 0 && !checkpoint_->has_optimizer_state(); }
  void look_around();
  void require_same_run() const;
  void require_same_model() const;
  bool check_data() const;
  void tell_changes(RunState& state) const;
  void keep_schedule(RunState& state) const;
  void tell_choices(const RunState& state) const;

  const Config& config_;
  const RunSetup& setup_;
  RunReport& report_;
  const RunData& data_;
  const std::string resume_;
  std::filesystem::path root_;
  std::vector<DataIdentity> files_;
  std::optional<CheckpointReader> checkpoint_;
  bool own_ = false;             // the checkpoint is in root_
  std::string newest_;           // name of the newest checkpoint in root_; empty: there is none
  std::string newest_run_;       // run_uuid of the newest in root_ that can be read
  Config before_;                // of the checkpoint's run, resolved; data.* as now if it is the same data
  std::vector<Change> changes_;  // since then
};

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/continuation.h"
#include "io/checkpoint/checkpoint.h"
#include "model/routing/expert_placements.h"
#include "optim/optimizer.h"
#include "parallel/data/zero.h"
#include "train/run/pinned_gemms.h"
#include "train/run/run_report.h"
#include "train/run/run_state.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// Collective. Returns a new unique identifier for a run, equal on all ranks.
std::string new_run_uuid(const ProcessGroup& world);

/// Returns the folder of a run's checkpoints.
std::filesystem::path checkpoint_root(const RunConfig& run);

/// Collective over the world. Returns the stage of the checkpoint from which a run with this configuration presumably
/// starts: 1 without stages or checkpoints. Reads the headers of checkpoints only, so StartingPoint may choose an older
/// checkpoint, since it verifies files. Call before earlier stages are checked, which are past. `config` may have
/// mistakes.
int presumed_stage(const Config& config, const ProcessGroup& world);

/// The start of a run: from random weights or from a checkpoint. The constructor chooses the checkpoint, compare()
/// compares it with the run, start() loads it. These are separate since the data of the checkpoint's stage and of later
/// ones are opened, and the model is built, in between: its placement of experts may depend on the load in the
/// checkpoint.
class StartingPoint {
 public:
  /// `configured`: the checkpoint that checkpoint.resume names. `sound`: the newest sound checkpoint of this run, for a
  /// rollback. Both may choose no checkpoint.
  enum class Choice { configured, sound };
  /// Collective over the world. Repairs the run's checkpoints and chooses one. `config`: that of the run, with all its
  /// stages. All references must outlive this.
  StartingPoint(const Config& config, const RunSetup& setup, RunReport& report, Choice choice = Choice::configured);

  /// Collective over the world. Compares the checkpoint's run with this one. Call before start(). `data`: one element
  /// per stage; from stage() on, they must be open and identified. They must outlive this. Throws a usage Error if
  ///   - the checkpoint belongs to another run than the configuration describes (config/continuation.h) or to another
  ///     model; the message lists all keys that differ (a bad_input Error if the model differs, but no key),
  ///   - the steps up to the checkpoint were made with other stages,
  ///   - the checkpoint is not in this run's folder and has no steps left to do,
  ///   - the folder contains checkpoints of another run, or
  ///   - optim.lora_* differ from the checkpoint's run, unless that had no adapters and no optimizer state.
  void compare(std::span<const RunData> data);

  bool is_checkpoint() const { return checkpoint_.has_value(); }
  /// Returns the stage of the checkpoint's last step; 1 without a checkpoint.
  int stage() const { return stage_; }
  /// Returns CheckpointReader::transformers(), the files of an imported model that later checkpoints of the run must
  /// contain, too. Empty without a checkpoint.
  std::string transformers() const { return checkpoint_ ? checkpoint_->transformers() : std::string(); }
  /// Returns the load of each mixture as the checkpoint states it; empty without a checkpoint and for older ones.
  std::vector<ExpertLoad> expert_load() const;
  /// Returns the placement of the experts with which the checkpoint was written; empty without a checkpoint.
  std::vector<MixturePlacement> expert_placement() const;

  /// The objects that start() initialises.
  struct Parts {
    Zero& zero;
    Optimizer& optimizer;
    const PinnedGemms& gemms;
  };
  /// Collective over the world. Initialises the weights, or loads weights and optimizer state from the checkpoint.
  /// Returns the state of the run; its `data` are those of the checkpoint, and the caller sets its `placement`. Reports
  /// differences from the checkpoint's run. Throws bad_input Errors if
  ///   - there is no checkpoint to start from but the run's folder contains some, or it contains newer ones than the
  ///     named checkpoint,
  ///   - token files have changed since the checkpoint was saved, unless data.changed is `warn` and, for data.train,
  ///     the checkpoint has fewer than run.steps steps,
  ///   - data.tokenizer is not the tokenizer of the checkpoint,
  ///   - the checkpoint has optimizer state, and optim.train_only differs from its value there, or
  ///   - the state in the checkpoint cannot be read.
  RunState start(const Parts& parts) const;
  /// Collective over the world. Completes a save during which an earlier process was killed: on rank 0, points LATEST
  /// at the checkpoint that this run resumes from, and deletes old checkpoints.
  void complete_interrupted_save() const;

 private:
  void start_new_run(RunState& state, const Parts& parts) const;
  void resume(RunState& state, const Parts& parts) const;
  /// True if lyceum convert made the checkpoint, and no run has trained it.
  bool is_untrained() const { return checkpoint_->header().step == 0 && !checkpoint_->has_optimizer_state(); }
  void inspect_checkpoint_folder();
  void compare_stages() const;
  void rename_present_data();
  bool same_past_data(const Difference& difference) const;
  void require_same_run() const;
  void require_same_adapters() const;
  void require_same_model() const;
  bool compare_data() const;
  void report_changes(RunState& state) const;
  void choose_schedule_length(RunState& state) const;
  void report_choices(const RunState& state) const;

  const Config& run_config_;
  const RunSetup& setup_;
  RunReport& report_;
  const Choice choice_;
  const std::string resume_;
  std::filesystem::path root_;
  // The next four belong to the stage of the checkpoint's last step.
  int stage_ = 1;
  Config config_;
  const RunData* data_ = nullptr;
  std::vector<DataIdentity> files_;
  // Token files that the checkpoint's run has read, and those of this run from stage_ on; each with its prefix once.
  std::vector<DataIdentity> read_files_, later_files_;
  std::optional<CheckpointReader> checkpoint_;
  bool in_run_folder_ = false;  // the checkpoint is in root_
  std::string newest_;          // name of the newest checkpoint in root_; empty: there is none
  std::string newest_run_;      // run_uuid of the newest readable checkpoint in root_
  Config run_before_;           // resolved configuration of the checkpoint's run
  Config before_;               // the same in the stage of its last step; data.* as now if the data are the same
  std::vector<std::pair<std::string, std::string>> renamed_;  // sources of data.train with another prefix than before
  std::vector<Change> changes_;                               // from before_ to config_
};

}  // namespace lyceum

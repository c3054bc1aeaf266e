#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/clock.h"
#include "core/error.h"
#include "io/checkpoint/checkpoint.h"
#include "io/run/lock.h"
#include "model/staged_model.h"
#include "optim/optimizer.h"
#include "parallel/data/zero.h"
#include "train/run/config_file.h"
#include "train/run/pinned_gemms.h"
#include "train/run/run_logs.h"
#include "train/run/run_peak.h"
#include "train/run/run_report.h"
#include "train/run/run_state.h"
#include "train/run/saves.h"
#include "train/run/starting_point.h"
#include "train/run/step_trace.h"
#include "train/run/throughput.h"
#include "train/setup/run_setup.h"
#include "train/step/live_placement.h"
#include "train/step/step.h"

namespace lyceum {

/// A training run, from its first or resumed step to its last: the loop of steps, validations and checkpoints, through
/// all training stages. StartingPoint starts the run, RunReport prints, RunLogs writes logs. All calls are collective
/// over the world.
class Trainer {
 public:
  struct Options {
    const RunLock* lock = nullptr;  // the lock of the run directory on rank 0; null: not checked
    const Config* given = nullptr;  // the configuration before resolve(), for run.dir/config.ini; null: none is written
    bool remeasure = false;         // see peak_of_run()
    Now now = Clock::now;           // clock for checkpoint.minutes
  };
  /// Compares the configurations of all ranks, chooses the checkpoint to start from, opens the data of its stage and of
  /// later ones, checks them and the steps of the ranks (require_matching_steps()), and allocates the model. `config`:
  /// the resolved configuration. `config_text`: the same as INI, which every checkpoint contains. `out`: receives the
  /// report of rank 0. All references and pointers must outlive this.
  Trainer(const Config& config, std::string config_text, const RunSetup& setup, std::ostream& out, Options options);
  /// Trains. Call once. Returns `done` after the last step, or `resubmit` if a stop was requested and a checkpoint of
  /// the last step, if there is one, was saved. Throws CheckpointNotSaved if that checkpoint could not be saved.
  ExitCode run();

 private:
  void start();
  /// Makes a stage the present one: its configuration, the model's positions, the buffers and the recorded step.
  void set_stage(int stage);
  /// Begins the stage of the next step if it is another one than the present stage.
  void begin_next_stage();
  /// Returns the data of the present stage.
  const RunData& data() const { return data_[static_cast<std::size_t>(stage_) - 1]; }
  void return_to_stage(int stage);
  void begin_data();
  std::vector<RunData> data_from_start();
  std::vector<std::string> problems_of_stages(int first, int end) const;
  void open_stages(int first, std::vector<RunData>& data);
  void open_logs();
  void make_step();
  bool roll_back_if_unsound();
  void end_endless_skips() const;
  void update_state(const StepResult& result);
  void validate();
  void report_entropy();
  /// Returns the placement with which the run begins, and whether it is that of the checkpoint
  /// (parallel.replace_every).
  std::pair<std::vector<MixturePlacement>, bool> first_placement();
  void replace_experts();
  void measure_ranks(StepResult& result) const;
  void agree_on_gemms();
  struct SaveOptions {
    bool in_background = false;  // start to save in a thread; finish_save() completes it
    bool timed = false;          // the save is due by checkpoint.minutes
  };
  /// Completes the pending save, if there is one, audits the run, and saves a checkpoint or starts to save it.
  void save(SaveOptions options);
  /// A save that has begun and is not yet reported.
  struct Save {
    CheckpointHeader header;
    Clock::time_point begun, waiting_since;  // waiting_since: training has waited for the save since then
    double waited = 0;                       // seconds that training waited for it before
  };
  /// Waits until all ranks have written the pending save, and publishes it. Does nothing if no save is pending.
  void finish_save();
  /// Calls `part`, a part of a save. `part` may throw CheckpointNotSaved, on all ranks or on none. The run then
  /// continues without this checkpoint: prints a warning and audits the memory, which may have been the reason.
  void attempt_save(const std::function<void()>& part);
  /// Reports a published checkpoint, updates config.ini and, if there is no complaint, deletes old checkpoints.
  /// `complaint`: a warning from publishing, or empty.
  void after_publishing(const Save& save, const std::string& complaint);
  /// Handles the requests of all ranks since the last step:
  ///   1. completes a background save that all ranks have written,
  ///   2. saves a checkpoint if checkpoint.minutes have passed,
  ///   3. if a stop is requested, saves a checkpoint, unless the last step was saved or none was
  ///      made, and returns true.
  /// Throws CheckpointNotSaved if the checkpoint of 3 cannot be saved.
  bool stop_requested_and_saved();
  /// Returns `done` after the last step. Throws a bad_input Error if steps were made but none made an update,
  /// CheckpointNotSaved if there is no checkpoint of the last step, and an Error if more than one step at the end was
  /// skipped.
  ExitCode final_exit_code() const;

  const Config& run_config_;                                  // with all stages
  Config config_;                                             // that of the present stage; other members refer to it
  std::vector<Mixture> mixtures_ = mixtures_of(run_config_);  // of the model; all stages have the same experts
  const std::string config_text_;
  const RunSetup& setup_;
  const Options options_;
  RunReport report_;
  std::string transformers_;                     // StartingPoint::transformers()
  std::optional<StartingPoint> starting_point_;  // until the run has started
  OpenSources open_sources_;
  int first_open_ = 0;         // the first stage whose data are open; 0: none
  std::vector<RunData> data_;  // one element per stage; empty for the stages before first_open_
  StagedModel model_;
  Zero zero_;
  Optimizer optimizer_;
  std::optional<LivePlacement> live_placement_;  // with parallel.replace_every
  int stage_ = 1;
  StageSchedule schedule_;               // of the learning rate; its length is state_.schedule_steps
  std::optional<TokenLoader> loader_;    // training samples at positions of the run
  std::optional<TrainStep> train_step_;  // of the present stage
  RunPeak peak_;
  std::optional<Throughput> throughput_;  // of the present stage
  std::optional<PinnedGemms> gemms_;
  RunState state_;
  RunLogs logs_;
  StepTrace trace_;
  std::optional<ConfigFile> config_file_;  // on rank 0
  SaveTimer save_timer_;                   // rank 0 decides by its timer
  // saved_step_: that of the checkpoint which a restart would resume from; -1: there is none. first_step_: the step
  // after which this process started, or to which it returned in a rollback.
  std::int64_t saved_step_ = -1, first_step_ = 0;
  std::int64_t new_shapes_ = 0;     // the step after which this process, a rollback or a stage began
  std::string not_saved_;           // why the last checkpoint that failed was not saved
  std::int64_t unsound_steps_ = 0;  // consecutive steps after which a checkpoint would not have been sound
  double last_valid_loss_ = 0;
  bool gemm_file_failing_ = false;
  struct BackgroundSave {
    Save save;
    BackgroundCheckpoint checkpoint;
  };
  std::optional<BackgroundSave> background_save_;  // the pending save
};

}  // namespace lyceum

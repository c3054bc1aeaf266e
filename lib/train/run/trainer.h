#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

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
#include "train/run/run_report.h"
#include "train/run/run_state.h"
#include "train/run/saves.h"
#include "train/run/starting_point.h"
#include "train/run/throughput.h"
#include "train/setup/run_setup.h"
#include "train/step/step.h"

namespace lyceum {

/// A training run from its first or its resumed step to its last: steps, validation, checkpoints. What it reports
/// is RunReport's, what it logs RunLogs', how it begins StartingPoint's. Every call is collective over the world.
class Trainer {
 public:
  struct Options {
    const RunLock* lock = nullptr;  // that holds the run directory, on rank 0
    const Config* given = nullptr;  // the configuration before resolve(), for run.dir/config.ini; null: none is written
    bool remeasure = false;         // as in train/run_peak.h
    Now now = Clock::now;           // for checkpoint.minutes
  };
  /// `config`: resolved. `config_text`: the same as INI, kept in every checkpoint.
  Trainer(const Config& config, std::string config_text, const RunSetup& setup, std::ostream& out, Options options);
  /// `resubmit` when a signal asked to stop: then the step in hand was finished, and a checkpoint holds it.
  ExitCode run();

 private:
  void start();
  void open_logs();
  void one_step();
  bool rolls_back();
  void take_over(const StepResult& result);
  void validate();
  void tell_entropy();
  void agree_on_gemms();
  struct SaveOptions {
    bool in_background = false;  // only begins, and finish_save() does the rest
    bool timed = false;          // because of checkpoint.minutes
  };
  void save(SaveOptions options);
  struct Save {
    CheckpointHeader header;
    Clock::time_point begun, waiting_since;  // waiting: no step is made
    double waited = 0;                       // seconds before
  };
  /// Publishes the save that is under way, if there is one, as soon as all ranks have written it.
  void finish_save();
  /// Does a part of a save. Where it fails on all ranks, it tells so and the run goes on without this checkpoint.
  void attempt_save(const std::function<void()>& part);
  void published(const Save& save, const std::string& complaint);
  /// Does what any rank was asked for since the last step. True if that is to stop; then the steps so far are on the
  /// disk.
  bool stops();
  /// The exit code when all steps are done; throws where they left nothing that is worth it.
  ExitCode finished() const;

  const Config& config_;
  const std::string config_text_;
  const RunSetup& setup_;
  const Options options_;
  RunData data_;
  RunReport report_;
  std::string transformers_;                     // of the checkpoint that the run began with
  std::optional<StartingPoint> starting_point_;  // until the run has started
  StagedModel model_;
  Zero zero_;
  Optimizer optimizer_;
  TrainStep train_step_;
  std::optional<Throughput> throughput_;
  std::optional<PinnedGemms> gemms_;
  RunState state_;
  RunLogs logs_;
  std::optional<ConfigFile> config_file_;  // on rank 0
  SaveTimer save_timer_;                   // rank 0's counts
  std::int64_t saved_step_ = -1, first_step_ = 0;
  std::string not_saved_;           // why the last checkpoint that failed was not saved
  std::int64_t unsound_steps_ = 0;  // one after another
  double last_valid_loss_ = 0;
  bool gemm_file_failing_ = false;
  struct BackgroundSave {
    Save save;
    BackgroundCheckpoint checkpoint;
  };
  std::optional<BackgroundSave> background_save_;  // under way
};

}  // namespace lyceum

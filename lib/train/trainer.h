#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "io/checkpoint/checkpoint.h"
#include "io/config/config.h"
#include "io/routing/log.h"
#include "io/run/lock.h"
#include "io/run/metrics.h"
#include "io/text/console.h"
#include "train/dead_experts.h"
#include "train/pinned_gemms.h"
#include "train/run_peak.h"
#include "train/run_setup.h"
#include "train/run_state.h"
#include "train/step.h"

namespace lyceum {

/// A training run from its first or its resumed step to its last: steps, validation, checkpoints, metrics, routing log.
/// Every call is collective over the world; only rank 0 writes logs and talks.
class Trainer {
 public:
  /// `config_text`: the resolved configuration as INI, kept in every checkpoint.
  /// `lock`: what holds the run directory, on rank 0; may be null elsewhere. `remeasure`: as in train/run_peak.h.
  Trainer(const Config& config, std::string config_text, const RunSetup& setup, const RunLock* lock, std::ostream& out,
          bool remeasure = false);
  ~Trainer();
  /// `resubmit` when a signal asked to stop: then the step in hand was finished, and a checkpoint holds it.
  ExitCode run();

 private:
  std::optional<CheckpointReader> open_checkpoint();
  void resume();
  void settle_checkpoints();
  void tell_placement();
  void open_logs();
  void log_start();
  void write_routing();
  void introduce();
  void one_step();
  void report(const StepResult& result, double seconds);
  void tell_changes(const CheckpointReader& reader);
  void choose_schedule(const CheckpointReader* reader);
  bool check_data(const CheckpointReader& reader);
  std::int64_t logical_tensors() const;
  void note_skip(const StepResult& result);
  void note_dead_experts();
  void record_routing();
  void validate();
  void agree_on_gemms();
  void save();
  void tell_entropy();
  void write_record();
  bool talks() const { return setup_.mesh.world.rank() == 0; }
  void note(const std::string& text);
  void log(bool& failing, const std::function<void()>& write);
  void start();
  /// The exit code when all steps are done; throws where they left nothing that is worth it.
  ExitCode finished() const;
  /// Whether a signal asked any rank to stop and the steps so far are on the disk.
  bool stops();

  const Config& config_;
  std::string config_text_;
  const RunSetup& setup_;
  const RunLock* lock_;
  std::ostream& out_;
  const bool remeasure_;
  RunData data_;
  std::optional<Console> console_;
  std::optional<CheckpointReader> checkpoint_;  // to go on from, until that is done
  StagedModel model_;
  Zero zero_;
  Optimizer optimizer_;
  TrainStep train_step_;
  std::optional<PinnedGemms> gemms_;
  RunState state_;
  DeadExperts dead_experts_;
  std::int64_t saved_step_ = -1, first_step_ = 0;
  RunPeak peak_;
  double mean_seconds_ = 0, last_valid_loss_ = 0;
  std::unique_ptr<nlohmann::ordered_json> record_;  // of the step in hand, for metrics.jsonl
  std::optional<MetricsLog> metrics_;
  std::optional<RoutingLog> routing_log_;
  bool starts_failing_ = false, metrics_failing_ = false, routing_log_failing_ = false, gemm_file_failing_ = false;
};

}  // namespace lyceum

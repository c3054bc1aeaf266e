#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "config/config.h"
#include "io/run/lock.h"
#include "io/run/metrics.h"
#include "io/text/console.h"
#include "model/routing/dead_experts.h"
#include "train/eval/evaluator.h"
#include "train/run/pinned_gemms.h"
#include "train/run/run_peak.h"
#include "train/run/run_state.h"
#include "train/run/throughput.h"
#include "train/setup/run_setup.h"
#include "train/step/live_placement.h"
#include "train/step/step.h"

namespace lyceum {

/// Prints the setup, the steps and the warnings of a training run for its user. Rank 0 prints; on other ranks the calls
/// print nothing. No call is collective.
class RunReport {
 public:
  /// `config`: the configuration of the present training stage, whose value may change with the stage. All references
  /// must outlive this.
  RunReport(const Config& config, const RunSetup& setup, std::ostream& out);

  /// True on rank 0, which prints.
  bool prints() const { return console_.has_value(); }
  /// Prints a line of text between the lines of steps.
  void note(const std::string& text);
  void warn(const std::string& text) { note("warning: " + text); }
  /// Calls `write`, whose effect training can do without. If it fails with ExitCode::failed, for example on a full
  /// disk, prints a warning and returns, so that the run continues. Rethrows other Errors, such as that of a damaged
  /// log. `failing`: true if the last call failed; then the warning is not repeated. Updated by this call.
  void attempt(bool& failing, const std::function<void()>& write);
  /// Calls `write`, whose effect no later step needs. If it throws any Error, prints a warning and returns.
  void attempt(const std::function<void()>& write);

  /// Prints the ranks, model, mesh, batch, data and peak. `lock` may be null. `steps`: those of the present stage.
  void introduce(const RunLock* lock, const RunData& data, std::int64_t steps, const RunPeak& peak,
                 const PinnedGemms& gemms);
  /// Prints stage_lines(), if the run has several stages. `run_config`: the configuration of the run.
  void stages(const Config& run_config);
  /// Prints that a training stage begins. Call after the configuration has become that of the stage. `data`: the data
  /// of the stage if they are others than those of the stage before, or null.
  void begin_stage(const Config& run_config, int stage, const RunData* data);
  /// Prints the placement of the experts on the ranks, see placement_lines(). `recorded`: true if it is that of a
  /// checkpoint.
  void placement(const RunState& state, bool recorded);
  /// Prints that experts have moved to other ranks after the last step of `state`, which took `seconds`.
  void moved(const PlacementChange& change, const RunState& state, double seconds);
  /// Prints which lines of metrics.jsonl were removed or are missing. `metrics`: as opened to resume after `step`.
  void reopened(const MetricsLog& metrics, std::int64_t step);
  /// Prints the line of a step if it is due, and news of dead experts. `state`: the state after the step. `seconds`:
  /// duration of the step.
  void step(const StepResult& result, const RunState& state, const Throughput& throughput, double seconds);
  /// Warns of a step whose update was skipped. `limits`: those that the step had.
  void left_out(const StepResult& result, const StepLimits& limits, std::int64_t step);
  /// Prints the losses of a validation after the last step of `state`, which took `seconds`.
  void validation(const SourcesEvaluation& evaluation, const RunData& data, const RunState& state, double seconds);
  /// Prints the unigram entropy of `tokens` validation tokens, in nats per token, next to the validation loss.
  void entropy(double entropy, std::int64_t tokens, double valid_loss);
  /// Prints that a checkpoint was saved. `root`: the folder of checkpoints. `seconds`: from the beginning of the save
  /// until the checkpoint was complete. `stopped`: the part of them during which training waited. `unsound`: the reason
  /// why the checkpoint is not sound, or empty.
  void saved(const std::string& root, std::int64_t step, double seconds, double stopped, const std::string& unsound);
  /// Prints that all steps were done before this start.
  void nothing_to_train(std::int64_t step);
  /// Prints that the run stopped on request after `step`.
  void stopped(std::int64_t step);

 private:
  /// Prints which GPU kernels multiplied the matrices of experts.
  void note_kernels();

  const Config& config_;
  const RunSetup& setup_;
  std::optional<Console> console_;  // on rank 0
  DeadExperts dead_experts_;
  std::int64_t steps_ = 0;   // steps since the start
  double mean_seconds_ = 0;  // duration of a step: a moving average
};

}  // namespace lyceum

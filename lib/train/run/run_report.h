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
#include "train/step/step.h"

namespace lyceum {

/// What a training run reports to people: its setup, its steps, its warnings. Rank 0 talks, the others are
/// silent; no call is collective.
class RunReport {
 public:
  RunReport(const Config& config, const RunSetup& setup, std::ostream& out);

  bool talks() const { return console_.has_value(); }
  /// A line of words between the steps.
  void note(const std::string& text);
  void warn(const std::string& text) { note("warning: " + text); }
  /// Writes something that training can do without. If that fails, for example on a full disk, the run continues: it is
  /// reported once, until writing succeeds again. `failing`: whether it failed the last time. Errors other than
  /// ExitCode::failed, such as that of a damaged log, are thrown.
  void attempt(bool& failing, const std::function<void()>& write);
  /// Writes something that no later step depends on. Each Error is reported, and the run continues.
  void attempt(const std::function<void()>& write);

  /// The ranks, model, mesh, batch, data and peak. `lock` may be null.
  void introduce(const RunLock* lock, const RunData& data, const RunPeak& peak, const PinnedGemms& gemms);
  /// Where the experts lie.
  void placement(const RunState& state);
  /// What was found in the metrics of a run that resumes after `step`.
  void reopened(const MetricsLog& metrics, std::int64_t step);
  /// The line of a step, where one is due, and what is new of dead experts. `state`: after the step.
  void step(const StepResult& result, const RunState& state, const Throughput& throughput, double seconds);
  /// A step without an update.
  void left_out(const StepResult& result, std::int64_t step);
  void validation(const SourcesEvaluation& evaluation, const RunData& data, std::int64_t step, double seconds);
  void entropy(double entropy, std::int64_t tokens, double valid_loss);
  /// `seconds`: from the beginning of the save until the checkpoint was there, `stopped` of them without a step.
  /// `unsound`: why the checkpoint is not sound, or empty.
  void saved(const std::string& root, std::int64_t step, double seconds, double stopped, const std::string& unsound);
  /// A run whose steps were done before it started.
  void nothing_to_train(std::int64_t step);
  /// By a signal.
  void stopped(std::int64_t step);

 private:
  /// On a GPU: which kernels multiply matrices of experts.
  void note_kernels();

  const Config& config_;
  const RunSetup& setup_;
  std::optional<Console> console_;  // on rank 0
  DeadExperts dead_experts_;
  std::int64_t steps_ = 0;   // since the start
  double mean_seconds_ = 0;  // of a step
};

}  // namespace lyceum

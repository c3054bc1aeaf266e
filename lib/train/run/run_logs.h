#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "config/config.h"
#include "io/routing/log.h"
#include "io/run/metrics.h"
#include "io/run/tensorboard.h"
#include "train/eval/evaluator.h"
#include "train/run/run_report.h"
#include "train/run/run_state.h"
#include "train/run/throughput.h"
#include "train/setup/run_setup.h"
#include "train/step/step.h"

namespace lyceum {

/// The logs of a run: starts.jsonl, metrics.jsonl and routing.h5 in its folder, and those for TensorBoard and
/// Prometheus if the configuration asks for them. Only rank 0 writes them, but all ranks make the calls; none is
/// collective. If a log cannot be written, for example on a full disk, `report` gets a warning, the run continues, and
/// the records are written as soon as that succeeds.
class RunLogs {
 public:
  /// `config`: the configuration of the present training stage, whose value may change with the stage. All references
  /// must outlive this.
  RunLogs(const Config& config, const RunSetup& setup, RunReport& report);
  ~RunLogs();

  /// Opens the logs to continue after step `state.step`. Call before the first step, and after a rollback: records of
  /// later steps are removed. `config_text`: the resolved configuration as INI, for RunStart. Throws bad_input Errors
  /// for damaged logs of steps; a damaged starts.jsonl is left as it is.
  void open(RunState& state, const std::string& config_text);

  /// Begins the record of a step for metrics.jsonl. `state`: the state after the step. `seconds`: duration of the step.
  void step(const StepResult& result, const RunState& state, const Throughput& throughput, double seconds);
  /// Adds validation losses to the record, between step() and end_step(). `sources`: the loaders that were evaluated.
  void validation(const SourcesEvaluation& evaluation, std::span<const TokenLoader> sources);
  /// Adds the unigram entropy of the validation tokens, in nats per token, to the record, between step() and
  /// end_step().
  void entropy(double entropy);
  /// Writes the record to metrics.jsonl, TensorBoard and Prometheus.
  void end_step();

  /// Moves the routing sums in `state` to routing.h5 as one record, and clears them on all ranks. Records that cannot
  /// be written stay in state.unwritten_routing until a later call.
  void routing(RunState& state);

  /// Completes routing.h5 at the end of the run. Warns if another program that holds it open prevents that.
  void finish();

  /// Syncs metrics.jsonl to the disk. Call before a checkpoint, so that after a power failure the file has all steps up
  /// to the checkpoint.
  void sync();

 private:
  void log_start(const RunState& state, const std::string& config_text);
  void write_routing(RunState& state);

  const Config& config_;
  const RunSetup& setup_;
  RunReport& report_;
  std::int64_t resumed_step_ = -1;  // the logs continue after this step; -1: they begin with the run
  std::unique_ptr<nlohmann::ordered_json> record_;
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  std::optional<RoutingLog> routing_;
  bool metrics_failing_ = false, tensorboard_failing_ = false, prometheus_failing_ = false;
  bool routing_failing_ = false;
};

}  // namespace lyceum

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

/// The logs of a run: starts.jsonl, metrics.jsonl, routing.h5 in its folder, and those for TensorBoard and Prometheus
/// that it asks for. Rank 0 writes them, no call is collective. One
/// that cannot be written, on a full disk, does not end the run: it catches up later.
class RunLogs {
 public:
  RunLogs(const Config& config, const RunSetup& setup, RunReport& report);
  ~RunLogs();

  /// Before the first step here, and when the run goes back; cuts off what is logged of later steps. `config_text`: as
  /// in RunStart. Throws bad_input Errors for damaged logs of steps; a damaged starts.jsonl stays as it is.
  void open(RunState& state, const std::string& config_text);

  /// Begins the record of a step in metrics.jsonl. `state`: after the step.
  void step(const StepResult& result, const RunState& state, const Throughput& throughput, double seconds);
  /// Add to that record.
  /// `sources`: those that were evaluated.
  void validation(const SourcesEvaluation& evaluation, std::span<const TokenLoader> sources);
  void entropy(double entropy);
  /// Writes the record to all logs of metrics.
  void end_step();

  /// Moves the routing since the last record from `state` to the log.
  void routing(RunState& state);

  /// Before a checkpoint: so that after a power failure metrics.jsonl has all steps up to it.
  void sync();

 private:
  void log_start(const RunState& state, const std::string& config_text);
  void write_routing(RunState& state);

  const Config& config_;
  const RunSetup& setup_;
  RunReport& report_;
  std::int64_t resumed_step_ = -1;  // after which the logs continue; -1: they begin
  std::unique_ptr<nlohmann::ordered_json> record_;
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  std::optional<RoutingLog> routing_;
  bool metrics_failing_ = false, tensorboard_failing_ = false, prometheus_failing_ = false;
  bool routing_failing_ = false;
};

}  // namespace lyceum

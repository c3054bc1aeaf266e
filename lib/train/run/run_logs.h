#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
  /// Replaces the record of the step before if end_step() has not written it.
  void step(const StepResult& result, const RunState& state, const Throughput& throughput, double seconds);
  /// Adds validation losses to the record, between step() and end_step(). `sources`: the loaders that were evaluated.
  void validation(const SourcesEvaluation& evaluation, std::span<const TokenLoader> sources);
  /// Adds the unigram entropy of the validation tokens, in nats per token, to the record, between step() and
  /// end_step().
  void entropy(double entropy);
  /// Writes the record to Prometheus. Also writes it to metrics.jsonl and TensorBoard every run.metrics_every steps, in
  /// the last step, after a validation, in the first step after a start or rollback, in the first step of a stage, and
  /// if the update of the step was skipped.
  void end_step();

  /// Moves the routing sums in `state` to routing.h5 as one record, and clears them on all ranks. Records that cannot
  /// be written stay in state.unwritten_routing until a later call.
  void routing(RunState& state);

  /// Call after experts have moved to other ranks: adds the moves after step `state.step` to routing.h5. Call routing()
  /// before, if a record is due. Moves that cannot be written are written with their steps by a later call, unless the
  /// run starts again before.
  void placement_changed(RunState& state);

  /// Completes routing.h5 at the end of the run. Warns if records or moves could not be written, and if they stay in
  /// the file's journal because another program has routing.h5 open.
  void finish(RunState& state);

  /// Writes the record of the last step if end_step() has not, and syncs metrics.jsonl to the disk. Call before a
  /// checkpoint, so that the file ends with the step of the checkpoint, even after a power failure.
  void sync();

 private:
  /// The numbers of a record whose change is always written.
  struct Events {
    std::int64_t stage = 0, skipped = 0, rollbacks = 0;
    bool operator==(const Events&) const = default;
  };

  /// The layers of routing.h5 with the placement of the experts after a step.
  struct LoggedPlacement {
    std::int64_t step = 0;
    std::vector<RoutingLog::Layer> layers;
  };

  /// True if end_step() is to write the record of the step that has ended.
  bool is_record_due() const;
  /// Writes the record to metrics.jsonl and TensorBoard.
  void write_record();
  void log_start(const RunState& state, const std::string& config_text);
  void write_routing(RunState& state);
  void append_routing(RunState& state);
  std::string missing_routing(const RunState& state) const;

  const Config& config_;
  const RunSetup& setup_;
  RunReport& report_;
  std::int64_t resumed_step_ = -1;  // routing.h5 continues after this step; -1: it begins with the run
  std::unique_ptr<nlohmann::ordered_json> record_;
  bool unwritten_ = false;           // record_ has a step that is not in metrics.jsonl
  std::optional<Events> written_;    // of the last record that was written since open()
  Events events_;                    // of record_
  std::int64_t interval_steps_ = 0;  // steps since the last record that was written
  double interval_seconds_ = 0;      // duration of these steps
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  std::optional<RoutingLog> routing_;
  std::vector<RoutingLog::Layer> first_layers_;       // with the placement at open()
  std::deque<LoggedPlacement> unwritten_placements_;  // that could not be written yet, oldest first
  bool metrics_failing_ = false, tensorboard_failing_ = false, prometheus_failing_ = false;
  bool routing_failing_ = false;
};

}  // namespace lyceum

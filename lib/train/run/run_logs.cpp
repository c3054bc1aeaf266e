#include "train/run/run_logs.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <deque>
#include <filesystem>
#include <iterator>

#include "core/allocator.h"
#include "core/clock.h"
#include "core/resident_memory.h"
#include "io/files/journaled_hdf5.h"
#include "io/run/prometheus.h"
#include "io/run/starts.h"
#include "io/text/table.h"
#include "model/routing/dead_experts.h"
#include "model/routing/routing_sums.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Adds the measurements of the layers to a record.
void add_layers(const LayerMetrics& layers, Json& record) {
  const auto blocks = layers.activation_norms.size();
  const auto name_of_layer = [&](std::size_t layer) {
    return layer == 0 ? "embedding" : layer > blocks ? "head" : std::to_string(layer - 1);
  };
  for (std::size_t layer = 0; layer < blocks + 2; ++layer) {
    record["layer_weight_norm/" + name_of_layer(layer)] = layers.weight_norms.at(layer);
  }
  for (std::size_t layer = 0; layer < blocks + 2; ++layer) {
    record["layer_grad_norm/" + name_of_layer(layer)] = layers.gradient_norms.at(layer);
  }
  for (std::size_t block = 0; block < blocks; ++block) {
    record["layer_activation_norm/" + std::to_string(block)] = layers.activation_norms[block];
  }
  for (std::size_t block = 0; block < layers.attention_logits.size(); ++block) {
    record["layer_attention_logit/" + std::to_string(block)] = layers.attention_logits[block];
  }
  record["largest_logit"] = layers.largest_logit;
}

}  // namespace

RunLogs::RunLogs(const Config& config, const RunSetup& setup, RunReport& report)
    : config_(config), setup_(setup), report_(report), record_(std::make_unique<Json>()) {}

RunLogs::~RunLogs() = default;

void RunLogs::open(RunState& state, const std::string& config_text) {
  if (setup_.mesh.world.rank() != 0) return;
  const fs::path folder = config_.run.dir;
  fs::create_directories(folder);
  resumed_step_ = state.step > 0 ? state.step : -1;
  if (state.step < config_.run.steps) log_start(state, config_text);
  routing_.reset();
  metrics_.emplace(folder / "metrics.jsonl", resumed_step_);
  tensorboard_.reset();
  unwritten_ = false;
  written_.reset();
  interval_steps_ = 0;
  interval_seconds_ = 0;
  report_.reopened(*metrics_, state.step);
  first_layers_.clear();
  unwritten_placements_.clear();
  if (config_.routing.every > 0) first_layers_ = logged_layers(config_, state.placement);
  if (!first_layers_.empty()) write_routing(state);
}

void RunLogs::log_start(const RunState& state, const std::string& config_text) {
  const RunStart start{.step = state.step,
                       .date = utc_date(),
                       .program = setup_.program,
                       .mesh = setup_.mesh.shape.text(setup_.mesh.world.size()),
                       .config = config_text};
  report_.attempt([&] { record_start(fs::path(config_.run.dir) / "starts.jsonl", start); });
}

void RunLogs::step(const StepResult& result, const RunState& state, const Throughput& throughput, double seconds) {
  if (!metrics_) return;
  double balance = 0;
  for (const StepResult::LayerLoss& loss : result.losses) balance += is_of_routers(loss.kind) ? loss.value : 0;
  *record_ = Json{{"step", state.step},
                  {"time", unix_seconds()},
                  {"loss", result.loss},
                  {"balance_loss", balance},
                  {"expert_balance_loss", 0.0},  // every record has these three, if 0
                  {"device_balance_loss", 0.0},
                  {"z_loss", 0.0},
                  {"grad_norm", result.grad_norm},
                  {"weight_norm", result.weight_norm},
                  {"update_norm", result.update_norm},
                  {"lr", result.lr},
                  {"tokens", state.tokens(config_.batch.seq_len)},
                  {"targets", result.targets},
                  {"tokens_per_second", throughput.tokens_per_second(seconds)},
                  {"step_ms", seconds * 1e3},
                  {"mfu", throughput.mfu(seconds)},
                  {"load_imbalance", result.load_imbalance},
                  {"idle_experts", idle_experts(result.loads)},
                  {"dead_experts", DeadExperts(config_.routing.dead_after).count(state.idle)},
                  {"skipped", state.skipped},
                  {"outliers", state.outliers},
                  {"rollbacks", state.rollbacks},
                  {"memory_peak_bytes", memory_of(setup_.stream).use().total_peak},
                  {"resident_peak_bytes", peak_resident_memory()}};
  if (result.rank_imbalance) {
    (*record_)["rank_imbalance"] = result.rank_imbalance->mean;
    (*record_)["rank_imbalance_max"] = result.rank_imbalance->worst;
  }
  if (result.rank_imbalance_without_replicas) {
    (*record_)["rank_imbalance_without_replicas"] = result.rank_imbalance_without_replicas->mean;
    (*record_)["replicas"] = result.replicas.replicas;
  }
  if (state.stage > 0) (*record_)["stage"] = state.stage;
  if (result.layers) add_layers(*result.layers, *record_);
  for (const StepResult::LayerLoss& loss : result.losses) (*record_)[name_of(loss.kind) + "_loss"] = loss.value;
  ++interval_steps_;
  interval_seconds_ += seconds;
  if (config_.run.metrics_every > 1) {
    (*record_)["interval_steps"] = interval_steps_;
    (*record_)["interval_ms"] = interval_seconds_ * 1e3;
  }
  events_ = {.stage = state.stage, .skipped = state.skipped, .rollbacks = state.rollbacks};
  unwritten_ = true;
}

void RunLogs::validation(const SourcesEvaluation& evaluation, std::span<const TokenLoader> sources) {
  (*record_)["valid_loss"] = evaluation.whole.loss;
  (*record_)["valid_standard_error"] = evaluation.whole.standard_error;
  (*record_)["valid_tokens"] = evaluation.whole.tokens;
  if (sources.size() == 1) return;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    (*record_)["valid_loss/" + sources[s].token_source().prefix()] = evaluation.sources[s].loss;
  }
}

void RunLogs::entropy(double entropy) { (*record_)["unigram_entropy"] = entropy; }

bool RunLogs::is_record_due() const {
  const auto step = (*record_)["step"].get<std::int64_t>();
  return is_due(step, config_.run.metrics_every) || step == config_.run.steps || record_->contains("valid_loss") ||
         written_ != events_;
}

void RunLogs::write_record() {
  unwritten_ = false;
  written_ = events_;
  interval_steps_ = 0;
  interval_seconds_ = 0;
  report_.attempt(metrics_failing_, [&] { metrics_->append(*record_); });
  if (!config_.run.tensorboard) return;
  report_.attempt(tensorboard_failing_, [&] {
    if (!tensorboard_) tensorboard_.emplace(fs::path(config_.run.dir) / "tensorboard", (*record_)["step"]);
    tensorboard_->append(*record_);
  });
}

void RunLogs::end_step() {
  if (!metrics_) return;
  if (is_record_due()) write_record();
  if (!config_.run.prometheus.empty()) {
    report_.attempt(prometheus_failing_, [&] { write_prometheus(config_.run.prometheus, *record_, config_.run.dir); });
  }
}

void RunLogs::sync() {
  if (!metrics_) return;
  if (unwritten_) write_record();
  report_.attempt(metrics_failing_, [&] { metrics_->sync(); });
}

void RunLogs::routing(RunState& state) {
  if (metrics_ && !state.routing.empty()) {
    state.unwritten_routing.push_back(
        {state.step, routing_record(state.routing, state.routing_tokens, state.routing_steps, state.replicas)});
    write_routing(state);
  }
  state.clear_routing();
}

/// Returns a text with the numbers of records and moves that are not in routing.h5 yet; empty if there are none.
std::string RunLogs::missing_routing(const RunState& state) const {
  const std::int64_t records = std::ssize(state.unwritten_routing), placements = std::ssize(unwritten_placements_);
  std::string text = records > 0 ? count_text(records, "record") : "";
  if (records > 0 && placements > 0) text += " and ";
  if (placements > 0) text += count_text(placements, "change") + " of the placement of experts";
  return text;
}

void RunLogs::finish(RunState& state) {
  const fs::path file = fs::path(config_.run.dir) / "routing.h5";
  if (!first_layers_.empty() && !missing_routing(state).empty()) write_routing(state);
  if (const std::string missing = missing_routing(state); !first_layers_.empty() && !missing.empty()) {
    report_.warn(
        fmt::format("{}: lacks {}, which could not be written: remove the cause, then start the same command again",
                    file.string(), missing));
  }
  if (!routing_) return;
  report_.attempt([&] {
    if (routing_->finish()) return;
    report_.warn(
        fmt::format("{0}: another program holds it open, so the newest records stay in {1}, where only lyceum "
                    "reads them: close the file there, then start the same command again",
                    file.string(), JournaledHdf5::journal_of(file).string()));
  });
}

void RunLogs::placement_changed(RunState& state) {
  if (!metrics_ || first_layers_.empty()) return;
  unwritten_placements_.push_back({state.step, logged_layers(config_, state.placement)});
  write_routing(state);
}

/// Appends the unwritten records and moves to routing.h5. Opens the file if it is not open; after a failure the next
/// call tries again.
void RunLogs::write_routing(RunState& state) {
  report_.attempt(routing_failing_, [&] {
    if (!routing_) {
      routing_.emplace(fs::path(config_.run.dir) / "routing.h5", first_layers_, resumed_step_,
                       RoutingLog::Origin{.run_uuid = state.run_uuid,
                                          .description = "Tokens that each expert received in the training run " +
                                                         config_.run.dir + ", one record per interval of steps"});
    }
    append_routing(state);
  });
}

/// Appends in the order of steps. A record comes before the moves after its last step.
void RunLogs::append_routing(RunState& state) {
  std::deque<RoutingRecord>& records = state.unwritten_routing;
  std::deque<LoggedPlacement>& placements = unwritten_placements_;
  while (!records.empty() || !placements.empty()) {
    if (placements.empty() || (!records.empty() && records.front().step <= placements.front().step)) {
      const auto& [step, layers] = records.front();
      if (step > routing_->last_step()) routing_->append(step, layers);
      records.pop_front();
    } else {
      routing_->place(placements.front().step, placements.front().layers);
      placements.pop_front();
    }
  }
}

}  // namespace lyceum

#include "train/run/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/real_text.h"
#include "io/text/table.h"
#include "kernels/product_kernel_counts.h"
#include "model/counts.h"
#include "model/model_tensors.h"
#include "model/stages.h"
#include "train/run/saves.h"
#include "train/run/start_tables.h"

namespace lyceum {

namespace {

/// Describes the pipeline: its schedule, stages and micro-batches, and the share of the time in which ranks wait, from
/// a simulation with the FLOPs of the stages.
std::string pipeline_line(const Config& config, const Mesh& mesh) {
  const Schedule schedule = training_schedule(config, mesh);
  const PipelineShape& shape = schedule.shape;
  Costs costs{.stages = {}};
  std::string blocks;
  for (const Range& stage : stage_blocks(config, shape.stages())) {
    const StageFlops flops = stage_flops(config, stage);
    costs.stages.push_back({flops.forward, flops.backward_input(), flops.backward_weight()});
    blocks += fmt::format("{}{}", blocks.empty() ? "" : " + ", stage.count);
  }
  return fmt::format("pipeline   {} · {} of {} blocks · {} · ranks wait {:.0f} % of the time (bubble, by FLOPs)",
                     name_of(config.parallel.schedule), count_text(shape.stages(), "stage"), blocks,
                     count_text(shape.microbatches, "micro-batch"), 100 * simulate(schedule, costs).bubble_fraction());
}

/// Returns the loss of the modules of multi-token prediction; nothing if the model has none.
std::optional<double> mtp_loss_of(const StepResult& result) {
  const auto found = std::ranges::find(result.losses, LossKind::mtp, &StepResult::LayerLoss::kind);
  return found == result.losses.end() ? std::nullopt : std::optional(found->value);
}

std::string batch_line(const Config& config) {
  return fmt::format("batch      {} of {} tokens = {} tokens per step, {} at a time per rank",
                     count_text(config.batch.global, "sequence"), config.batch.seq_len,
                     config.batch.global * config.batch.seq_len, count_text(config.batch.micro, "sequence"));
}

/// "2.3026 ± 0.0123"
std::string loss_text(const Evaluation& evaluation) {
  return fmt::format("{} ± {}", real_text(evaluation.loss, ".4f"), real_text(evaluation.standard_error, ".4f"));
}

}  // namespace

RunReport::RunReport(const Config& config, const RunSetup& setup, std::ostream& out)
    : config_(config), setup_(setup), dead_experts_(config.routing.dead_after) {
  if (setup.mesh.world.rank() == 0) console_.emplace(out, terminal_columns());
}

void RunReport::note(const std::string& text) {
  if (console_) console_->note(text);
}

void RunReport::attempt(bool& failing, const std::function<void()>& write) {
  try {
    write();
    failing = false;
  } catch (const Error& error) {
    if (error.code() != ExitCode::failed) throw;
    if (!std::exchange(failing, true)) warn(fmt::format("{}; training continues", error.what()));
  }
}

void RunReport::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    warn(fmt::format("{}; training continues", error.what()));
  }
}

void RunReport::introduce(const RunLock* lock, const RunData& data, std::int64_t steps, const RunPeak& peak,
                          const PinnedGemms& gemms) {
  if (!prints()) return;
  for (const std::string& line : rank_lines(setup_)) note(line);
  if (lock && !lock->recovered().empty()) warn(lock->recovered());
  const ModelCounts counts = count_model(config_);
  const int world = setup_.mesh.world.size();
  note(fmt::format("model      {} parameters, {} activated per token, {} per sequence of {} tokens",
                   human_count(static_cast<double>(counts.parameters)),
                   human_count(static_cast<double>(counts.activated)),
                   human_count(counts.causal_flops_per_sequence, "FLOP"), config_.batch.seq_len));
  if (config_.mtp.depth > 0) {
    note(fmt::format("modules    {} of multi-token prediction with {} parameters, in training only; FLOPs include them",
                     count_text(config_.mtp.depth, "module"), human_count(static_cast<double>(counts.modules.total))));
  }
  if (!config_.optim.train_only.empty()) {
    note(fmt::format("trained    {} parameters, selected by optim.train_only; MFU counts all parameters",
                     human_count(static_cast<double>(count_trained_values(config_)))));
  }
  if (config_.optim.lora_rank > 0) {
    note(
        fmt::format("adapters   {} parameters in matrices of optim.lora_targets, of rank {}; all other weights are "
                    "frozen; MFU counts all parameters",
                    human_count(static_cast<double>(count_trained_values(config_))), config_.optim.lora_rank));
  }
  note(fmt::format("mesh       {} · {} · {} per rank · {}", count_text(world, "rank"), setup_.mesh.shape.text(world),
                   count_text(setup_.resources[static_cast<std::size_t>(setup_.mesh.world.rank())].threads, "thread"),
                   name_of(config_.run.precision)));
  note(fmt::format("           {}", mesh_legend));
  if (setup_.mesh.pipeline.size() > 1) note(pipeline_line(config_, setup_.mesh));
  note(batch_line(config_));
  for (const std::string& line : data_lines(config_, data, steps)) note(line);
  note(fmt::format("peak       {} of {} matrix products, {}; MFU is relative to it", human_count(peak.flops, "FLOP/s"),
                   name_of(config_.run.precision), peak.source));
  note("saves      " + saves_text(config_));
  if (!gemms.report_line().empty()) note(gemms.report_line());
  if (config_.moe.even_routing) {
    warn(
        "moe.even_routing: tokens are not sent to the experts that the router chooses; use this only to measure speed");
  }
}

void RunReport::stages(const Config& run_config) {
  for (const std::string& line : stage_lines(run_config)) note(line);
}

void RunReport::begin_stage(const Config& run_config, int stage, const RunData* data) {
  steps_ = std::min<std::int64_t>(steps_, 1);  // the durations of earlier steps say nothing about those of this stage
  if (!prints()) return;
  const std::int64_t first = first_step_of(run_config, stage), last = last_step_of(run_config, stage);
  note(fmt::format("stage {:<4} from step {} on: {}", stage, first, stage_changes_text(run_config, stage)));
  note(batch_line(config_));
  if (!data) return;
  for (const std::string& line : data_lines(config_, *data, last - first + 1)) note(line);
}

void RunReport::placement(const RunState& state, bool recorded) {
  if (!prints() || setup_.mesh.expert.size() == 1) return;
  for (const std::string& line : placement_lines(config_, state.placement, state.load, recorded)) note(line);
}

void RunReport::moved(const PlacementChange& change, const RunState& state, double seconds) {
  if (!prints()) return;
  note(fmt::format(
      "step {}: {} of {} changed ranks in {} s ({}): the busiest rank now has {} times the mean FLOPs, before {}",
      state.step, count_text(change.experts, "expert"), count_text(change.layers, "layer"), real_text(seconds, ".2f"),
      text_of_bytes(change.bytes), real_text(change.imbalance_after, ".3f"),
      real_text(change.imbalance_before, ".3f")));
}

void RunReport::reopened(const MetricsLog& metrics, std::int64_t step) {
  const std::int64_t last = metrics.resumed_at(), cut = metrics.lines_cut();
  if (cut > 0) note(fmt::format("metrics    {} removed: steps after {} are repeated", count_text(cut, "line"), step));
  if (last >= 0 && last < step) {
    warn(fmt::format("metrics.jsonl lacks steps {} to {}: they could not be written, or were written in another folder",
                     last + 1, step));
  }
}

void RunReport::step(const StepResult& result, const RunState& state, const Throughput& throughput, double seconds) {
  if (!prints()) return;
  // The ETA uses a moving average over about twenty steps. It omits the first step after a start, which warms caches.
  const bool warming = ++steps_ <= 2;
  if (steps_ == 1) note_kernels();
  mean_seconds_ = warming ? seconds : 0.95 * mean_seconds_ + 0.05 * seconds;
  const std::int64_t steps = config_.run.steps, every = log_every_of(config_.run);
  const ProgressLine line{
      .step = state.step,
      .steps = steps,
      .loss = result.loss,
      .grad_norm = result.grad_norm,
      .lr = result.lr,
      .step_seconds = mean_seconds_,
      .tokens_per_second = throughput.tokens_per_second(mean_seconds_),
      .mfu = throughput.mfu(mean_seconds_),
      .eta_seconds = mean_seconds_ * static_cast<double>(steps - state.step),
      .load_imbalance = result.loads.empty() ? std::nullopt : std::optional(result.load_imbalance),
      .rank_imbalance = result.rank_imbalance ? std::optional(result.rank_imbalance->mean) : std::nullopt,
      .mtp_loss = mtp_loss_of(result),
      .skipped = state.skipped,
      .stage = state.stage};
  const bool due = state.step % every == 0;
  if (!due && state.step != steps && state.step != 1) {
    console_->tick(line);
    return;
  }
  console_->step(line);
  for (const std::string& news : dead_experts_.news(state.step, state.idle)) note(news);
}

void RunReport::note_kernels() {
  std::string text;
  for (const auto& [kernel, products] : product_kernel_counts(setup_.stream)) {
    text += fmt::format("{}{} by {}", text.empty() ? "" : ", ", products, kernel);
  }
  if (!text.empty()) note("kernels    expert GEMMs in the first step: " + text);
}

void RunReport::left_out(const StepResult& result, const StepLimits& limits, std::int64_t step) {
  if (result.outlier) {
    warn(fmt::format("step {} skipped on all ranks: {} (optim.skip_above = {})", step,
                     outlier_text(result.loss, result.grad_norm, limits), config_.optim.skip_above));
    return;
  }
  if (result.targets == 0) {
    warn(fmt::format("step {} skipped on all ranks: no token of its batch counts in the loss", step));
    return;
  }
  warn(fmt::format("step {} skipped on all ranks (loss {}, gradient norm {}){}", step, real_text(result.loss),
                   real_text(result.grad_norm),
                   result.culprit.empty() ? "" : ": first non-finite value: " + result.culprit));
}

void RunReport::validation(const SourcesEvaluation& evaluation, const RunData& data, const RunState& state,
                           double seconds) {
  const auto& [whole, sources] = evaluation;
  const std::int64_t all = data.valid_samples() * config_.batch.seq_len;
  const std::string stage = state.stage > 0 ? fmt::format(" (stage {})", state.stage) : "";
  note(fmt::format("validation after step {}{}: loss {}, perplexity {}, {} of {} tokens in {:.1f} s", state.step, stage,
                   loss_text(whole), real_text(std::exp(whole.loss), ".2f"), whole.tokens, all, seconds));
  if (sources.size() == 1) return;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    note(fmt::format("           {}: loss {}, {} tokens", data.valid[s].token_source().prefix(), loss_text(sources[s]),
                     sources[s].tokens));
  }
}

void RunReport::entropy(double entropy, std::int64_t tokens, double valid_loss) {
  note(fmt::format("validation loss {} nats per token · unigram entropy of all {} validation tokens {}",
                   real_text(valid_loss, ".4f"), tokens, real_text(entropy, ".4f")));
}

void RunReport::saved(const std::string& root, std::int64_t step, double seconds, double stopped,
                      const std::string& unsound) {
  note(fmt::format("checkpoint {} after step {} in {:.1f} s{}{}", root, step, seconds,
                   config_.checkpoint.background ? fmt::format(", training stopped for {:.2f} s", stopped) : "",
                   unsound.empty() ? "" : "; not sound: " + unsound));
}

void RunReport::nothing_to_train(std::int64_t step) {
  note(fmt::format("nothing to train: {} of {} steps are done", step, config_.run.steps));
}

void RunReport::stopped(std::int64_t step) {
  note(fmt::format("stopped on request {}: run the same command to continue",
                   step > 0 ? fmt::format("after step {}", step) : "before the first step"));
}

}  // namespace lyceum

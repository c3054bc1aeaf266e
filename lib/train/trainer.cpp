#include "train/trainer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <random>
#include <utility>

#include "io/checkpoint.h"
#include "model/counts.h"
#include "train/evaluator.h"
#include "train/peak.h"
#include "train/schedule.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

/// Steps left out one after another before the run gives up: the weights are then beyond mending.
constexpr std::int64_t most_skips_in_a_row = 50;

std::string new_uuid(const ProcessGroup& world) {
  std::string uuid;
  if (world.rank() == 0) {
    std::random_device device;
    const auto word = [&] { return static_cast<std::uint32_t>(device()); };
    uuid = fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:08x}{:04x}", word(), word() & 0xffff, word() & 0xfff,
                       (word() & 0x3fff) | 0x8000, word(), word() & 0xffff);
  }
  return world.broadcast(uuid, 0);
}

fs::path checkpoint_root(const Config& config) { return fs::path(config.run.dir) / "checkpoints"; }

bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Trainer::Trainer(const Config& config, std::string config_text, const RunSetup& setup, std::ostream& out)
    : config_(config),
      config_text_(std::move(config_text)),
      setup_(setup),
      out_(out),
      data_(open_data(config, true)),
      model_(config, setup.stream, setup.mesh, working_type(config.run), true),
      optimizer_(config.optim, setup.stream, model_.units()),
      train_step_(config, setup, model_, optimizer_) {}

Trainer::~Trainer() = default;

void Trainer::note(const std::string& text) {
  if (console_) console_->note(text);
}

/// A log that cannot be written, on a full disk, does not end the run: it is told once, and both logs catch up later.
void Trainer::log(bool& failing, const std::function<void()>& write) {
  try {
    write();
    failing = false;
  } catch (const Error& error) {
    if (error.code() != ExitCode::failed) throw;
    if (!std::exchange(failing, true)) note(fmt::format("warning: {}; training goes on", error.what()));
  }
}

ExitCode Trainer::run() {
  if (talks()) console_.emplace(out_, terminal_columns());
  std::array<double, 1> peak{measure_gemm_peak(setup_.stream, working_type(config_.run))};
  setup_.mesh.world.all_reduce(std::span(peak));
  peak_ = peak[0];
  introduce(peak_);
  resume();
  open_logs();
  if (config_.checkpoint.at_start && state_.step == 0) save();
  while (state_.step < config_.run.steps) {
    one_step();
    if (due(state_.step, config_.routing.every)) record_routing();
    if (due(state_.step, config_.eval.every)) validate();
    if (due(state_.step, config_.checkpoint.every)) save();
    if (state_.step < config_.run.steps && asked_to_stop()) {
      if (saved_step_ != state_.step) save();
      require(saved_step_ == state_.step, "asked to stop, but the checkpoint could not be written");
      note(fmt::format("stopped on request after step {}: run the same command to go on", state_.step));
      return ExitCode::resubmit;
    }
  }
  conclude();
  require(saved_step_ == state_.step,
          "the last checkpoint could not be written: free space on the disk of {}, then run the same command to go on "
          "from the checkpoint before",
          config_.run.dir);
  return ExitCode::done;
}

bool Trainer::asked_to_stop() const {
  std::array<std::int64_t, 1> asked{stop_request_.made() ? 1 : 0};
  setup_.mesh.world.all_reduce(std::span(asked), Reduction::max);
  return asked[0] != 0;
}

void Trainer::introduce(double peak) {
  const ModelCounts counts = count_model(config_);
  const int world = setup_.mesh.world.size();
  note(fmt::format("model      {} parameters, {} activated a token, {}FLOP a sequence of {}",
                   human_count(static_cast<double>(counts.parameters)),
                   human_count(static_cast<double>(counts.activated)), human_count(counts.causal_flops_per_sequence),
                   config_.batch.seq_len));
  note(fmt::format("mesh       {} rank{} · {} · {} threads a rank · {}", world, world > 1 ? "s" : "",
                   setup_.mesh.shape.text(world), std::get<CpuStream>(setup_.stream).threads(), config_.run.precision));
  note(fmt::format("batch      {} sequences of {} = {} tokens, {} at a time a rank", config_.batch.global,
                   config_.batch.seq_len, config_.batch.global * config_.batch.seq_len, config_.batch.micro));
  note(fmt::format("data       {} · {} training samples{}", data_.train->file().prefix(), data_.train->order().count(),
                   data_.valid ? fmt::format(" · {} for validation", data_.valid->order().count()) : ""));
  note(fmt::format("peak       {}FLOP/s, this machine's best 512³ {} GEMM on all ranks at once: MFU counts against it",
                   human_count(peak), config_.run.precision));
}

void Trainer::resume() {
  const fs::path root = checkpoint_root(config_);
  const auto chosen = choose_checkpoint(setup_.mesh.world, root, config_.checkpoint.resume,
                                        [&](const std::string& warning) { note("warning: " + warning); });
  if (!chosen) {
    // Starting over beside old checkpoints would mix two runs: their newest would win at the next start.
    require_input(list_checkpoints(root).empty(),
                  config_.checkpoint.resume == "none"
                      ? "{} holds checkpoints of an earlier run: set another run.dir, or checkpoint.resume=auto"
                      : "no checkpoint in {} is whole: mend or move them, or set another run.dir",
                  root.string());
    state_.run_uuid = new_uuid(setup_.mesh.world);
    model_.initialize(config_.run.seed);
    optimizer_.adopt_weights();
    return;
  }
  const CheckpointReader reader(*chosen);
  optimizer_.load(reader);
  restore_state(reader.header().trainer_state);
  state_.run_uuid = reader.header().run_uuid;
  state_.step = reader.header().step;
  saved_step_ = state_.step;
  note(fmt::format("resumed    {} (mesh {})", reader.directory().string(), reader.header().mesh));
}

void Trainer::open_logs() {
  if (!talks()) return;
  fs::create_directories(config_.run.dir);
  const std::int64_t resumed = state_.step > 0 ? state_.step : -1;
  metrics_.emplace(fs::path(config_.run.dir) / "metrics.jsonl", resumed);
  if (config_.routing.every == 0 || model_.placements().empty()) return;
  std::vector<RoutingLog::Layer> layers;
  for (const auto& [layer, placement] : model_.placements()) {
    layers.push_back({.layer = layer,
                      .top_k = config_.moe.top_k,
                      .expert_sizes = expert_widths(config_.moe),
                      .expert_rank = {placement->owner.begin(), placement->owner.end()}});
  }
  routing_log_.emplace(fs::path(config_.run.dir) / "routing.h5", std::move(layers), resumed);
}

void Trainer::one_step() {
  const auto start = Clock::now();
  const double lr = learning_rate(config_.optim, state_.step, config_.run.steps);
  const StepResult result = train_step_.run(*data_.train, state_.samples, lr);
  ++state_.step;
  state_.samples += config_.batch.global;
  add_routing(result);
  note_skip(result);
  report(result, seconds_since(start));
}

void Trainer::note_skip(const StepResult& result) {
  state_.skipped_in_a_row = result.skipped ? state_.skipped_in_a_row + 1 : 0;
  if (!result.skipped) return;
  ++state_.skipped;
  std::string culprit;
  const std::vector<std::string> culprits = setup_.mesh.world.all_gather(result.culprit);
  for (std::size_t rank = 0; rank < culprits.size() && culprit.empty(); ++rank) {
    if (!culprits[rank].empty())
      culprit = fmt::format(": the gradient of {} on rank {} is not finite", culprits[rank], rank);
  }
  note(fmt::format("warning: step {} left out on all ranks (loss {}, gradient norm {}){}", state_.step, result.loss,
                   result.grad_norm, culprit));
  require(state_.skipped_in_a_row < most_skips_in_a_row,
          "{} steps in a row were not finite: resume an earlier checkpoint with a lower optim.lr",
          state_.skipped_in_a_row);
}

void Trainer::report(const StepResult& result, double seconds) {
  // ETA follows a mean over the last twenty steps or so; the first step compiles and is not in it.
  mean_seconds_ = mean_seconds_ == 0 ? seconds : 0.95 * mean_seconds_ + 0.05 * seconds;
  if (!metrics_) return;
  const auto tokens = static_cast<double>(config_.batch.global * config_.batch.seq_len);
  const double flops = count_model(config_).causal_flops_per_sequence * static_cast<double>(config_.batch.global);
  const MemoryUse memory = memory_of(setup_.stream).use();
  const Json record{{"step", state_.step},
                    {"loss", result.loss},
                    {"balance_loss", result.expert_loss + result.device_loss + result.z_loss},
                    {"expert_balance_loss", result.expert_loss},
                    {"device_balance_loss", result.device_loss},
                    {"z_loss", result.z_loss},
                    {"grad_norm", result.grad_norm},
                    {"lr", result.lr},
                    {"tokens", state_.samples * config_.batch.seq_len},
                    {"tokens_per_second", tokens / seconds},
                    {"step_ms", seconds * 1e3},
                    {"mfu", flops / seconds / peak_},
                    {"load_imbalance", result.load_imbalance},
                    {"skipped", state_.skipped},
                    {"memory_peak_bytes", memory.total_peak}};
  log(metrics_failing_, [&] { metrics_->append(record); });
  const ProgressLine line{
      .step = state_.step,
      .steps = config_.run.steps,
      .loss = result.loss,
      .grad_norm = result.grad_norm,
      .lr = result.lr,
      .tokens_per_second = tokens / mean_seconds_,
      .mfu = flops / mean_seconds_ / peak_,
      .eta_seconds = mean_seconds_ * static_cast<double>(config_.run.steps - state_.step),
      .load_imbalance = result.routing.empty() ? std::nullopt : std::optional(result.load_imbalance),
      .skipped = state_.skipped};
  const bool log = due(state_.step, config_.run.log_every) || state_.step == config_.run.steps || state_.step == 1;
  log ? console_->step(line) : console_->tick(line);
}

void Trainer::add_routing(const StepResult& result) {
  if (result.routing.empty()) return;
  state_.routing_tokens += config_.batch.global * config_.batch.seq_len;
  if (state_.routing.empty()) {
    state_.routing = result.routing;
    return;
  }
  for (std::size_t layer = 0; layer < result.routing.size(); ++layer) {
    RoutingSums& sums = state_.routing[layer];
    const RoutingSums& more = result.routing[layer];
    for (std::size_t i = 0; i < sums.counts.size(); ++i) sums.counts[i] += more.counts[i];
    for (std::size_t i = 0; i < sums.probability.size(); ++i) sums.probability[i] += more.probability[i];
  }
}

void Trainer::record_routing() {
  if (routing_log_) {
    std::vector<LayerRouting> layers;
    for (const RoutingSums& sums : state_.routing) {
      LayerRouting layer{.layer = sums.layer,
                         .top_k = sums.top_k,
                         .experts = sums.experts,
                         .counts = sums.counts,
                         .mean_probability = {}};
      for (const double sum : sums.probability) {
        layer.mean_probability.push_back(static_cast<float>(sum / static_cast<double>(state_.routing_tokens)));
      }
      layers.push_back(std::move(layer));
    }
    log(routing_log_failing_, [&] { routing_log_->append(state_.step, layers); });
  }
  state_.routing.clear();
  state_.routing_tokens = 0;
}

void Trainer::validate() {
  if (!data_.valid) return;
  const auto start = Clock::now();
  const Evaluation evaluation = evaluate(model_, setup_, config_, *data_.valid, config_.eval.batches);
  last_valid_loss_ = evaluation.loss;
  validated_step_ = state_.step;
  if (metrics_) {
    const Json record{{"step", state_.step}, {"valid_loss", evaluation.loss}, {"valid_tokens", evaluation.tokens}};
    log(metrics_failing_, [&] { metrics_->append(record); });
  }
  note(fmt::format("validation after step {}: loss {:.4f}, perplexity {:.2f}, {} tokens in {:.1f} s", state_.step,
                   evaluation.loss, std::exp(evaluation.loss), evaluation.tokens, seconds_since(start)));
}

void Trainer::save() {
  const auto start = Clock::now();
  const fs::path root = checkpoint_root(config_);
  const Mesh& mesh = setup_.mesh;
  std::size_t turn = 0;
  const auto owns = [&](const ParameterUnit& unit) {  // copies take turns, so that every rank writes its share
    const ProcessGroup& copies = unit.group() == ParameterUnit::Group::dense ? mesh.data : mesh.expert_data;
    return turn++ % static_cast<std::size_t>(copies.size()) == static_cast<std::size_t>(copies.rank());
  };
  try {
    write_checkpoint(mesh.world, root,
                     {.run_uuid = state_.run_uuid,
                      .step = state_.step,
                      .mesh = mesh.shape.text(mesh.world.size()),
                      .config = config_text_,
                      .trainer_state = state_text()},
                     optimizer_.pieces(owns));
  } catch (const Error& error) {  // the same on all ranks: training is worth more than this checkpoint
    if (error.code() != ExitCode::failed) throw;
    note(fmt::format("warning: {}", error.what()));
    return;
  }
  saved_step_ = state_.step;
  if (talks()) prune_checkpoints(root, config_.checkpoint.keep);
  note(fmt::format("checkpoint {} after step {} in {:.1f} s", root.string(), state_.step, seconds_since(start)));
}

void Trainer::conclude() {
  if (validated_step_ != state_.step) validate();
  if (saved_step_ != state_.step) save();
  if (!talks() || !data_.valid) return;
  const std::int64_t batches = config_.eval.batches;
  const std::int64_t samples = batches > 0 ? std::min(data_.valid->order().count(), batches * config_.batch.global)
                                           : data_.valid->order().count();
  const auto [first, count] = data_.valid_tokens(samples, config_.batch.seq_len);
  const double entropy = unigram_entropy(data_.valid->file(), first, count);
  note(fmt::format("validation loss {:.4f} nats a token · unigram entropy of the same tokens {:.4f}", last_valid_loss_,
                   entropy));
  const Json record{{"step", state_.step}, {"unigram_entropy", entropy}};
  log(metrics_failing_, [&] { metrics_->append(record); });
}

std::string Trainer::state_text() const {
  Json routing = Json::array();
  for (const RoutingSums& sums : state_.routing) {
    routing.push_back({{"layer", sums.layer},
                       {"top_k", sums.top_k},
                       {"experts", sums.experts},
                       {"counts", sums.counts},
                       {"probability", sums.probability}});
  }
  return Json{{"updates", optimizer_.updates()},
              {"samples", state_.samples},
              {"skipped", state_.skipped},
              {"skipped_in_a_row", state_.skipped_in_a_row},
              {"routing_tokens", state_.routing_tokens},
              {"routing", routing}}
      .dump();
}

void Trainer::restore_state(const std::string& text) {
  try {
    const Json state = Json::parse(text);
    optimizer_.set_updates(state.at("updates"));
    state_.samples = state.at("samples");
    state_.skipped = state.at("skipped");
    state_.skipped_in_a_row = state.at("skipped_in_a_row");
    state_.routing_tokens = state.at("routing_tokens");
    for (const Json& sums : state.at("routing")) {
      state_.routing.push_back({.layer = sums.at("layer"),
                                .top_k = sums.at("top_k"),
                                .experts = sums.at("experts"),
                                .counts = sums.at("counts"),
                                .probability = sums.at("probability")});
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::bad_input, "the checkpoint's trainer state cannot be read: {}", error.what());
  }
}

}  // namespace lyceum

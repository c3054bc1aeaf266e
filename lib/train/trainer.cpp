#include "train/trainer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>
#include <utility>

#include "core/allocator.h"
#include "core/clock.h"
#include "io/config/binding.h"
#include "io/config/ini_file.h"
#include "io/files/sha256.h"
#include "io/run/starts.h"
#include "io/text/table.h"
#include "model/counts.h"
#include "model/stages.h"
#include "train/evaluator.h"
#include "train/placement_table.h"
#include "train/preflight.h"
#include "train/routing_sums.h"
#include "train/schedule.h"
#include "train/start_table.h"
#include "train/stop_request.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Steps left out one after another before the run gives up: the weights are then beyond mending.
constexpr std::int64_t most_skips_in_a_row = 50;
/// Steps left out one after another at the end of a run that still count as an accident.
constexpr std::int64_t most_skips_at_the_end = 1;

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

/// The stages, and how long they wait for each other by their FLOPs.
std::string pipeline_line(const Config& config, const Mesh& mesh) {
  const Schedule schedule = training_schedule(config, mesh);
  const PipelineShape& shape = schedule.shape;
  Costs costs{.stages = {}};
  std::string blocks;
  for (const Range& stage : stage_blocks(config, shape.stages())) {
    const StageFlops flops = stage_flops(config, stage);
    costs.stages.push_back({flops.forward, flops.backward_input(), flops.backward_weight()});
    blocks += fmt::format(" {}", stage.count);
  }
  return fmt::format("pipeline   {} · stages of{} blocks · {} micro-batches · idle {:.0f} % of the time by FLOPs",
                     config.parallel.schedule, blocks, shape.microbatches,
                     100 * simulate(schedule, costs).bubble_fraction());
}

/// The data of a run whose ranks are going to call what fits together.
RunData checked_data(const Config& config, const std::string& config_text, const RunSetup& setup) {
  RunData data = open_data(config, true);
  preflight(config, config_text, setup.mesh.world, *data.train);
  return data;
}

/// The token files as rank 0 sees them, on all ranks.
std::vector<DataFiles> files_of(const RunData& data, const DataConfig& config, const ProcessGroup& world) {
  const auto fingerprint = [&](const TokenLoader& loader) {
    return world.broadcast(world.rank() == 0 ? loader.file().fingerprint() : "", 0);
  };
  std::vector<DataFiles> files{{.key = "data.train", .prefix = config.train, .fingerprint = fingerprint(*data.train)}};
  if (!config.valid.empty()) {
    files.push_back({.key = "data.valid", .prefix = config.valid, .fingerprint = fingerprint(*data.valid)});
  }
  return files;
}

/// Keys and values of a configuration's text.
std::map<std::string, std::string> values_in(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> mistakes;
  std::map<std::string, std::string> values;
  for (IniEntry& entry : read_ini(stream, "configuration", mistakes)) values[entry.key] = std::move(entry.value);
  return values;
}

/// The optimizer's keys of a checkpoint's configuration, and how long its run was to be. Other keys may be those of
/// another build.
Config optimizer_config(const std::string& text) {
  std::vector<std::string> given;
  for (const auto& [key, value] : values_in(text)) {
    if (key.starts_with("optim.") || key == "run.steps") given.push_back(fmt::format("--{}={}", key, value));
  }
  return read_config(given).config;
}

}  // namespace

Trainer::Trainer(const Config& config, std::string config_text, const RunSetup& setup, const RunLock* lock,
                 std::ostream& out, bool remeasure)
    : config_(config),
      config_text_(std::move(config_text)),
      setup_(setup),
      lock_(lock),
      out_(out),
      remeasure_(remeasure),
      data_(checked_data(config, config_text_, setup)),
      checkpoint_(open_checkpoint()),
      model_(config, setup.stream, setup.mesh, working_type(config.run), true,
             checkpoint_ ? RunState::load_of(checkpoint_->header().trainer_state) : std::vector<ExpertLoad>{}),
      zero_(model_.units(), setup.mesh, setup.stream, zero_options(config, setup.mesh)),
      optimizer_(config.optim, setup.stream, zero_.shares()),
      train_step_(config, setup, model_, zero_, optimizer_),
      dead_experts_(config.routing.dead_after),
      record_(std::make_unique<Json>()) {}

Trainer::~Trainer() = default;

void Trainer::note(const std::string& text) {
  if (console_) console_->note(text);
}

/// A log that cannot be written, on a full disk, does not end the run: it is told once, and the logs catch up later.
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
  start();
  if (stops()) return ExitCode::resubmit;
  if (state_.step >= config_.run.steps) {
    note(fmt::format("nothing to train: {} of {} steps are done", state_.step, config_.run.steps));
    validate();
    tell_entropy();
    return finished();
  }
  while (state_.step < config_.run.steps) {
    one_step();
    const bool last = state_.step == config_.run.steps;
    if (due(state_.step, config_.routing.every)) record_routing();
    if (last || due(state_.step, config_.eval.every)) validate();
    if (last) tell_entropy();
    write_record();
    if (last || due(state_.step, config_.checkpoint.every)) save();
    if (!last && stops()) return ExitCode::resubmit;
  }
  return finished();
}

ExitCode Trainer::finished() const {
  require(saved_step_ == state_.step,
          "the last checkpoint could not be written: free space on the disk of {}, then run the same command to go on "
          "from the checkpoint before",
          config_.run.dir);
  require(
      state_.skipped_in_a_row <= most_skips_at_the_end,
      "the last {} steps were left out, so the run ends without a result: lower optim.lr and run the command again, "
      "it goes back to the newest sound checkpoint",
      state_.skipped_in_a_row);
  return ExitCode::done;
}

void Trainer::start() {
  peak_ = peak_of_run(config_.run, setup_, remeasure_);
  gemms_.emplace(config_.run, setup_, fs::path(config_.run.dir) / "gemm.json");  // whose first product is the model's
  introduce();
  resume();
  settle_checkpoints();
  tell_placement();
  open_logs();
  if (config_.checkpoint.at_start && state_.step == 0) save();
}

bool Trainer::stops() {
  std::array<std::int64_t, 1> asked{stop_requested() ? 1 : 0};
  setup_.mesh.world.all_reduce(std::span(asked), Reduction::max);
  if (asked[0] == 0) return false;
  if (state_.step > 0 && saved_step_ != state_.step) {
    save();
    require(saved_step_ == state_.step, "asked to stop, but the checkpoint could not be written");
  }
  note(fmt::format("stopped on request {}: run the same command to go on",
                   state_.step > 0 ? fmt::format("after step {}", state_.step) : "before the first step"));
  return true;
}

void Trainer::introduce() {
  for (const std::string& line : start_lines(setup_)) note(line);
  if (lock_ && !lock_->recovered().empty()) note("warning: " + lock_->recovered());
  const ModelCounts counts = count_model(config_);
  const int world = setup_.mesh.world.size();
  note(fmt::format("model      {} parameters, {} activated a token, {} a sequence of {}",
                   human_count(static_cast<double>(counts.parameters)),
                   human_count(static_cast<double>(counts.activated)),
                   human_count(counts.causal_flops_per_sequence, "FLOP"), config_.batch.seq_len));
  note(fmt::format("mesh       {} · {} · {} a rank · {}", count_text(world, "rank"), setup_.mesh.shape.text(world),
                   count_text(setup_.places[static_cast<std::size_t>(setup_.mesh.world.rank())].threads, "thread"),
                   config_.run.precision));
  if (setup_.mesh.pipeline.size() > 1) note(pipeline_line(config_, setup_.mesh));
  note(fmt::format("batch      {} sequences of {} = {} tokens, {} at a time a rank", config_.batch.global,
                   config_.batch.seq_len, config_.batch.global * config_.batch.seq_len, config_.batch.micro));
  note(fmt::format("data       {} · {} training samples{}", data_.train->file().prefix(), data_.train->order().count(),
                   data_.valid ? fmt::format(" · {} for validation", data_.valid->order().count()) : ""));
  note(fmt::format("peak       {} of {} matrix products, {}: MFU counts against it", human_count(peak_.flops, "FLOP/s"),
                   config_.run.precision, peak_.source));
  if (!gemms_->told().empty()) note(gemms_->told());
  if (config_.moe.even_routing) {
    note("warning: moe.even_routing: tokens do not go where the router sends them; for measuring speed alone");
  }
}

/// Before there is a model: where its experts lie may depend on the load that a checkpoint tells.
std::optional<CheckpointReader> Trainer::open_checkpoint() {
  if (talks()) {
    console_.emplace(out_, terminal_columns());
    mend_checkpoints(checkpoint_root(config_));
  }
  const auto chosen = choose_checkpoint(setup_.mesh.world, checkpoint_root(config_), config_.checkpoint.resume,
                                        [&](const std::string& warning) { note("warning: " + warning); });
  if (!chosen) return {};
  return CheckpointReader(*chosen);
}

void Trainer::resume() {
  const fs::path root = checkpoint_root(config_);
  state_.data = files_of(data_, config_.data, setup_.mesh.world);
  if (!checkpoint_) {
    // Starting over beside old checkpoints would mix two runs: their newest would win at the next start.
    require_input(list_checkpoints(root).empty(),
                  config_.checkpoint.resume == "none"
                      ? "{} holds checkpoints of an earlier run: set another run.dir, or checkpoint.resume=auto"
                      : "no checkpoint in {} is whole: mend or move them, or set another run.dir",
                  root.string());
    state_.run_uuid = new_uuid(setup_.mesh.world);
    choose_schedule(nullptr);
    zero_.initialize(config_.run.seed);
    optimizer_.adopt_weights();
    return;
  }
  const CheckpointReader& reader = *checkpoint_;
  const std::vector<std::string> present = list_checkpoints(root);
  require_input(
      config_.checkpoint.resume == "auto" || present.empty() ||
          present.front() <= checkpoint_name(reader.header().step),
      "{} holds {}, newer than the checkpoint to go on from: set another run.dir, or move the newer ones away",
      root.string(), present.empty() ? "" : present.front());
  const bool data_changed = check_data(reader);
  const std::int64_t tensors = logical_tensors();
  require_input(static_cast<std::int64_t>(reader.tensors().size()) == tensors,
                "{} holds {} tensors, this model has {}: set the configuration that it was made with",
                reader.directory().string(), reader.tensors().size(), tensors);
  optimizer_.load(reader);
  zero_.values_changed();
  state_.restore(reader.header().trainer_state, no_routing(config_));
  state_.run_uuid = reader.header().run_uuid;
  state_.step = first_step_ = reader.header().step;
  optimizer_.set_updates(state_.updates);
  saved_step_ = state_.step;
  note(fmt::format("resumed    {} (mesh {})", reader.directory().string(), reader.header().mesh));
  if (gemms_->anew()) {
    note(fmt::format("warning: no GEMM algorithms for this GPU in {}: they are chosen anew, the last bits may differ",
                     (fs::path(config_.run.dir) / "gemm.json").string()));
  }
  if (config_.checkpoint.resume != "auto" && !reader.header().unsound.empty()) {
    note("warning: this checkpoint is not sound: " + reader.header().unsound);
    state_.soundness = {};  // whoever names it wants it
  }
  if (data_changed) state_.soundness = {};  // losses of another task
  tell_changes(reader);
  choose_schedule(&reader);
}

/// What a run that was killed while it saved left undone: LATEST names the checkpoint that this one goes on from, and
/// old ones are gone.
void Trainer::settle_checkpoints() {
  if (talks()) {
    const fs::path root = checkpoint_root(config_);
    bool failing = false;
    log(failing, [&] {
      const std::string name = checkpoint_name(state_.step);
      std::error_code absent;
      if (checkpoint_ && fs::equivalent(checkpoint_->directory(), root / name, absent)) set_latest(root, name);
      prune_checkpoints(root, config_.checkpoint.keep);
    });
  }
  checkpoint_.reset();
}

void Trainer::tell_placement() {
  const int ranks = setup_.mesh.expert.size();
  state_.placement = place_all(config_, ranks, state_.load);
  if (ranks == 1) return;
  for (const std::string& line : placement_lines(config_, state_.placement, state_.load)) note(line);
}

/// Values of every logical tensor of the whole model, and two moments of what is trained.
std::int64_t Trainer::logical_tensors() const {
  std::array<std::int64_t, 1> experts{0}, all{0};
  for (const ParameterUnit* unit : model_.units()) {
    std::int64_t pieces = 0;
    for (const auto& parameter : unit->parameters()) pieces += static_cast<std::int64_t>(parameter->pieces.size());
    if (unit->twin()) continue;
    pieces *= unit->trained() ? 3 : 1;
    (unit->group() == ParameterUnit::Group::expert ? experts[0] : all[0]) += pieces;
  }
  setup_.mesh.expert.all_reduce(std::span(experts));
  all[0] += experts[0];
  setup_.mesh.pipeline.all_reduce(std::span(all));
  return all[0];
}

/// A resumed run whose model, data or optimizer keys differ is another run from there on: that is said. What only
/// trades memory for time is none of these.
void Trainer::tell_changes(const CheckpointReader& reader) {
  constexpr std::array telling{"data.",  "batch.",   "model.",        "moe.",           "balance.",
                               "optim.", "run.seed", "run.precision", "run.gemm_choice"};
  constexpr std::array silent{"batch.micro",          "model.recompute", "model.loss_chunk",
                              "optim.schedule_steps", "data.changed",    "data.tokenizer"};
  const auto before = values_in(reader.header().config);
  for (const auto& [key, value] : values_in(config_text_)) {
    const bool tells =
        std::any_of(telling.begin(), telling.end(), [&](const char* part) { return key.starts_with(part); }) &&
        std::find(silent.begin(), silent.end(), key) == silent.end();
    const auto old = before.find(key);
    if (tells && old != before.end() && old->second != value) {
      note(fmt::format("warning: {} = {} from here on; the checkpoint was made with {}", key, value, old->second));
      if (!key.starts_with("optim.") && !key.starts_with("run.")) state_.soundness = {};  // losses of another task
    }
  }
}

/// The schedule of the learning rate belongs to the checkpoint: more run.steps alone do not stretch it, which would
/// raise a rate that had come down.
void Trainer::choose_schedule(const CheckpointReader* reader) {
  const std::int64_t given = config_.optim.schedule_steps, steps = config_.run.steps;
  if (!reader) {
    state_.schedule_steps = given > 0 ? given : steps;
    return;
  }
  const Config before = optimizer_config(reader->header().config);
  const std::int64_t made_for = state_.schedule_steps > 0 ? state_.schedule_steps : before.run.steps;
  state_.schedule_steps = given > 0 ? given : made_for;
  if (state_.step >= steps) return;
  const double lr = learning_rate(config_.optim, state_.step, state_.schedule_steps);
  const double was = learning_rate(before.optim, state_.step, made_for);
  if (lr == 0 && config_.optim.lr > 0 && state_.schedule_steps < steps) {
    note(
        fmt::format("warning: the learning rate is 0 from step {} on: the schedule ends at step {}; set "
                    "optim.schedule_steps={} to make it end with the run, or optim.min_lr",
                    state_.step + 1, state_.schedule_steps, steps));
  } else if (lr != was) {
    note(
        fmt::format("warning: the learning rate of step {} is {:.3g}; by the checkpoint's schedule, {} over {} steps, "
                    "it would be {:.3g}",
                    state_.step + 1, lr, before.optim.schedule, made_for, was));
  } else if (state_.schedule_steps != steps && config_.optim.schedule != "constant") {
    note(
        fmt::format("schedule   {} over {} steps, as the checkpoint has it; optim.schedule_steps={} makes it end with "
                    "the run",
                    config_.optim.schedule, state_.schedule_steps, steps));
  }
}

/// Whether data.changed lets others pass than the data of the checkpoint's run. Others under another name are told by
/// tell_changes().
bool Trainer::check_data(const CheckpointReader& reader) {
  const std::string directory = reader.directory().string(), tokenizer = reader.tokenizer_sha256();
  require_input(
      tokenizer.empty() || data_.tokenizer.empty() || sha256(data_.tokenizer) == tokenizer,
      "data.tokenizer = {} is not the tokenizer of {}, which brings its own: copy {}/{} out of there, "
      "where later checkpoints replace it, and set data.tokenizer to the copy and the data that were made with it",
      config_.data.tokenizer, directory, directory, tokenizer_name);
  bool changed = false;
  for (const DataFiles& before : RunState::data_of(reader.header().trainer_state)) {
    for (const DataFiles& now : state_.data) {
      if (now.key != before.key || now.prefix != before.prefix || now.fingerprint == before.fingerprint) continue;
      require_input(config_.data.changed == "warn",
                    "{} = {}: the files have changed since {} was saved: put the old ones back, or set data.changed = "
                    "warn to go on with these",
                    now.key, now.prefix, directory);
      note(fmt::format("warning: {} = {}: the files have changed since the checkpoint was saved", now.key, now.prefix));
      changed = true;
    }
  }
  return changed;
}

void Trainer::open_logs() {
  if (!talks()) return;
  fs::create_directories(config_.run.dir);
  const std::int64_t resumed = state_.step > 0 ? state_.step : -1;
  if (state_.step < config_.run.steps) log_start();
  metrics_.emplace(fs::path(config_.run.dir) / "metrics.jsonl", resumed);
  const std::int64_t last = metrics_->resumed_at(), cut = metrics_->lines_cut();
  if (cut > 0) {
    note(fmt::format("metrics    {} cut off: steps after {} are done again", count_text(cut, "line"), state_.step));
  }
  if (last >= 0 && last < state_.step) {
    note(fmt::format("warning: metrics.jsonl lacks steps {} to {}: they could not be written", last + 1, state_.step));
  }
  if (config_.routing.every > 0 && !logged_layers(config_, state_.placement).empty()) write_routing();
}

/// Hands over the records that the log lacks. It is made here, and made again when that failed.
void Trainer::write_routing() {
  log(routing_log_failing_, [&] {
    if (!routing_log_) {
      routing_log_.emplace(fs::path(config_.run.dir) / "routing.h5", logged_layers(config_, state_.placement),
                           first_step_ > 0 ? first_step_ : -1);
    }
    for (std::deque<RoutingRecord>& waiting = state_.unwritten_routing; !waiting.empty(); waiting.pop_front()) {
      const auto& [step, layers] = waiting.front();
      if (step > routing_log_->last_step()) routing_log_->append(step, layers);
    }
  });
}

void Trainer::log_start() {
  const RunStart start{.step = state_.step,
                       .date = utc_date(),
                       .program = setup_.program,
                       .mesh = setup_.mesh.shape.text(setup_.mesh.world.size()),
                       .config = config_text_};
  log(starts_failing_, [&] { record_start(fs::path(config_.run.dir) / "starts.jsonl", start); });
}

void Trainer::one_step() {
  const auto start = Clock::now();
  const bool timed_before = state_.step == first_step_ + 1 && config_.run.gemm_choice == "timed";
  if (timed_before) memory_of(setup_.stream).reset_peaks();  // timing took memory of its own
  const double lr = learning_rate(config_.optim, state_.step, state_.schedule_steps);
  const StepResult result = train_step_.run(*data_.train, state_.step, state_.samples, lr);
  ++state_.step;
  state_.samples += config_.batch.global;
  state_.updates = optimizer_.updates();
  if (result.skipped) {  // what the routers did may not be finite
    state_.soundness.leave_out();
  } else {
    state_.add_routing(result.routing, config_.batch.global * config_.batch.seq_len);
    add_step(state_.idle, result.routing);
    state_.soundness.add(result.loss, result.update_norm, result.weight_norm);
  }
  if (lock_) lock_->require_held();
  if (state_.step == first_step_ + 1) agree_on_gemms();
  note_skip(result);
  report(result, seconds_since(start));
}

void Trainer::note_skip(const StepResult& result) {
  state_.skipped_in_a_row = result.skipped ? state_.skipped_in_a_row + 1 : 0;
  if (!result.skipped) return;
  ++state_.skipped;
  note(fmt::format("warning: step {} left out on all ranks (loss {}, gradient norm {}){}", state_.step, result.loss,
                   result.grad_norm, result.culprit.empty() ? "" : ": not finite is " + result.culprit));
  require(state_.skipped_in_a_row < most_skips_in_a_row,
          "{} steps in a row were not finite: resume an earlier checkpoint with a lower optim.lr",
          state_.skipped_in_a_row);
}

void Trainer::report(const StepResult& result, double seconds) {
  // ETA follows a mean over the last twenty steps or so; the first step after a start warms caches and is not in it.
  const bool warming = state_.step <= first_step_ + 2;
  mean_seconds_ = warming ? seconds : 0.95 * mean_seconds_ + 0.05 * seconds;
  if (!metrics_) return;
  const auto tokens = static_cast<double>(config_.batch.global * config_.batch.seq_len);
  const double flops = count_model(config_).causal_flops_per_sequence * static_cast<double>(config_.batch.global);
  const MemoryUse memory = memory_of(setup_.stream).use();
  double balance = 0;
  for (const StepResult::NamedLoss& loss : result.losses) balance += loss.value;
  *record_ = Json{{"step", state_.step},
                  {"loss", result.loss},
                  {"balance_loss", balance},
                  {"expert_balance_loss", 0.0},  // these three stand in every record
                  {"device_balance_loss", 0.0},
                  {"z_loss", 0.0},
                  {"grad_norm", result.grad_norm},
                  {"weight_norm", result.weight_norm},
                  {"update_norm", result.update_norm},
                  {"lr", result.lr},
                  {"tokens", state_.samples * config_.batch.seq_len},
                  {"tokens_per_second", tokens / seconds},
                  {"step_ms", seconds * 1e3},
                  {"mfu", flops / seconds / peak_.flops},
                  {"load_imbalance", result.load_imbalance},
                  {"dead_experts", dead_experts_.count(state_.idle)},
                  {"skipped", state_.skipped},
                  {"memory_peak_bytes", memory.total_peak}};
  for (const StepResult::NamedLoss& loss : result.losses) (*record_)[loss.name + "_loss"] = loss.value;
  const ProgressLine line{
      .step = state_.step,
      .steps = config_.run.steps,
      .loss = result.loss,
      .grad_norm = result.grad_norm,
      .lr = result.lr,
      .tokens_per_second = tokens / mean_seconds_,
      .mfu = flops / mean_seconds_ / peak_.flops,
      .eta_seconds = mean_seconds_ * static_cast<double>(config_.run.steps - state_.step),
      .load_imbalance = result.routing.empty() ? std::nullopt : std::optional(result.load_imbalance),
      .skipped = state_.skipped};
  const bool log = due(state_.step, config_.run.log_every) || state_.step == config_.run.steps || state_.step == 1;
  log ? console_->step(line) : console_->tick(line);
  if (log) note_dead_experts();
}

void Trainer::note_dead_experts() {
  for (const std::string& line : dead_experts_.news(state_.step, state_.idle)) note(line);
}

void Trainer::record_routing() {
  if (talks() && !state_.routing.empty()) {
    state_.unwritten_routing.push_back({state_.step, routing_record(state_.routing, state_.routing_tokens)});
    write_routing();
  }
  state_.clear_routing();
}

void Trainer::write_record() {
  if (metrics_) log(metrics_failing_, [&] { metrics_->append(*record_); });
}

void Trainer::validate() {
  if (!data_.valid) return;
  const auto start = Clock::now();
  train_step_.release_memory();
  const Evaluation evaluation = evaluate(model_, setup_, config_, *data_.valid, config_.eval.batches);
  last_valid_loss_ = evaluation.loss;
  (*record_)["valid_loss"] = evaluation.loss;
  (*record_)["valid_standard_error"] = evaluation.standard_error;
  (*record_)["valid_tokens"] = evaluation.tokens;
  note(fmt::format("validation after step {}: loss {:.4f} ± {:.4f}, perplexity {:.2f}, {} of {} tokens in {:.1f} s",
                   state_.step, evaluation.loss, evaluation.standard_error, std::exp(evaluation.loss),
                   evaluation.tokens, data_.valid->order().count() * config_.batch.seq_len, seconds_since(start)));
}

/// A checkpoint's steps, and those that follow it, then have the same algorithms in a run that goes on from it.
void Trainer::agree_on_gemms() {
  if (const std::string news = gemms_->agree(); !news.empty()) note(news);
  log(gemm_file_failing_, [&] { gemms_->save(); });
}

void Trainer::save() {
  if (lock_) lock_->require_held(true);
  agree_on_gemms();
  const auto start = Clock::now();
  const fs::path root = checkpoint_root(config_);
  const Mesh& mesh = setup_.mesh;
  const std::string unsound = state_.soundness.problem();
  std::string complaint;
  try {
    complaint = write_checkpoint(mesh.world, root,
                                 {.run_uuid = state_.run_uuid,
                                  .step = state_.step,
                                  .mesh = mesh.shape.text(mesh.world.size()),
                                  .config = config_text_,
                                  .trainer_state = state_.text(),
                                  .job = batch_job(),
                                  .unsound = unsound,
                                  .tokenizer = data_.tokenizer},
                                 optimizer_.pieces());
  } catch (const Error& error) {  // the same on all ranks: training is worth more than this checkpoint
    if (error.code() != ExitCode::failed) throw;
    note(fmt::format("warning: {}", error.what()));
    return;
  }
  saved_step_ = state_.step;
  if (!complaint.empty()) {
    note("warning: " + complaint);
  } else if (talks()) {
    prune_checkpoints(root, config_.checkpoint.keep);
  }
  note(fmt::format("checkpoint {} after step {} in {:.1f} s{}", root.string(), state_.step, seconds_since(start),
                   unsound.empty() ? "" : "; it is not sound: " + unsound));
}

void Trainer::tell_entropy() {
  if (!talks() || !data_.valid) return;
  const auto [first, count] = data_.valid_tokens(config_.batch.seq_len);
  const double entropy = unigram_entropy(data_.valid->file(), first, count);
  note(fmt::format("validation loss {:.4f} nats a token · unigram entropy of all {} validation tokens {:.4f}",
                   last_valid_loss_, count, entropy));
  (*record_)["unigram_entropy"] = entropy;
}

}  // namespace lyceum

#include "train/starting_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <span>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "io/config/binding.h"
#include "io/config/ini_file.h"
#include "io/files/sha256.h"
#include "model/routing_statistics.h"
#include "train/schedule.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

/// The token files as rank 0 sees them, on all ranks.
std::vector<DataFiles> files_of(const RunData& data, const DataConfig& config, const ProcessGroup& world) {
  std::vector<DataFiles> files;
  const auto add = [&](const char* key, const TokenLoader& loader) {
    for (const TokenLoader::Source& source : loader.sources()) {
      const TokenFile& file = source.samples->file();
      files.push_back({.key = key,
                       .prefix = file.prefix(),
                       .fingerprint = world.broadcast(world.rank() == 0 ? file.fingerprint() : "", 0)});
    }
  };
  add("data.train", *data.train);
  if (config.valid.empty()) return files;  // parts of those of data.train
  for (const TokenLoader& loader : data.valid) add("data.valid", loader);
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
Config config_before(const std::string& text) {
  std::vector<std::string> given;
  for (const auto& [key, value] : values_in(text)) {
    if (key.starts_with("optim.") || key == "run.steps") given.push_back(fmt::format("--{}={}", key, value));
  }
  return read_config(given).config;
}

/// Values of every logical tensor of the whole model and, with `moments`, two of what is trained. Collective.
std::int64_t logical_tensors(const StagedModel& model, const Mesh& mesh, bool moments) {
  std::array<std::int64_t, 1> experts{0}, all{0};
  for (const ParameterUnit* unit : model.units()) {
    std::int64_t pieces = 0;
    for (const auto& parameter : unit->parameters()) pieces += static_cast<std::int64_t>(parameter->pieces.size());
    if (unit->twin()) continue;
    pieces *= moments && unit->trained() ? 3 : 1;
    (unit->group() == ParameterUnit::Group::expert ? experts[0] : all[0]) += pieces;
  }
  mesh.expert.all_reduce(std::span(experts));
  all[0] += experts[0];
  mesh.pipeline.all_reduce(std::span(all));
  return all[0];
}

}  // namespace

std::string new_run_uuid(const ProcessGroup& world) {
  std::string uuid;
  if (world.rank() == 0) {
    std::random_device device;
    const auto word = [&] { return static_cast<std::uint32_t>(device()); };
    uuid = fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:08x}{:04x}", word(), word() & 0xffff, word() & 0xfff,
                       (word() & 0x3fff) | 0x8000, word(), word() & 0xffff);
  }
  return world.broadcast(uuid, 0);
}

fs::path checkpoint_root(const RunConfig& run) { return fs::path(run.dir) / "checkpoints"; }

StartingPoint::StartingPoint(const Config& config, const std::string& config_text, const RunSetup& setup,
                             RunReport& report, Choice choice)
    : config_(config),
      config_text_(config_text),
      setup_(setup),
      report_(report),
      resume_(choice == Choice::sound ? "auto" : config.checkpoint.resume),
      root_(checkpoint_root(config.run)) {
  if (setup.mesh.world.rank() == 0) mend_checkpoints(root_);
  const auto warn = [&](const std::string& warning) { report.warn(warning); };
  const auto chosen = choose_checkpoint(setup.mesh.world, root_, resume_, warn, choice == Choice::sound);
  if (chosen) checkpoint_.emplace(*chosen);
}

std::vector<ExpertLoad> StartingPoint::expert_load() const {
  if (!checkpoint_) return {};
  return RunState::load_of(checkpoint_->header().trainer_state);
}

RunState StartingPoint::start(const Parts& parts) const {
  RunState state;
  state.data = files_of(parts.data, config_.data, setup_.mesh.world);
  checkpoint_ ? resume(state, parts) : begin_anew(state, parts);
  return state;
}

void StartingPoint::begin_anew(RunState& state, const Parts& parts) const {
  // Starting over next to old checkpoints would mix two runs: their newest would win at the next start.
  require_input(list_checkpoints(root_).empty(),
                resume_ == "none"
                    ? "{} contains checkpoints of an earlier run: set another run.dir, or checkpoint.resume=auto"
                    : "no checkpoint in {} is intact: repair or move them, or set another run.dir",
                root_.string());
  state.run_uuid = new_run_uuid(setup_.mesh.world);
  state.schedule_steps = config_.optim.schedule_steps > 0 ? config_.optim.schedule_steps : config_.run.steps;
  parts.zero.initialize(config_.run.seed);
  parts.optimizer.adopt_weights();
}

void StartingPoint::resume(RunState& state, const Parts& parts) const {
  const CheckpointReader& reader = *checkpoint_;
  const CheckpointHeader& header = reader.header();
  const std::string directory = reader.directory().string();
  const std::vector<std::string> present = list_checkpoints(root_);
  require_input(
      resume_ == "auto" || present.empty() || present.front() <= checkpoint_name(header.step),
      "{} contains {}, newer than the checkpoint to resume from: set another run.dir, or move the newer ones away",
      root_.string(), present.empty() ? "" : present.front());
  const bool same_data = check_data(state.data, parts.data.tokenizer);
  const Config before = config_before(header.config);
  require_input(!reader.has_moments() || before.optim.train_only == config_.optim.train_only,
                "optim.train_only differs from that of {}: start a new run from its weights with lyceum convert reset",
                directory);
  const std::int64_t tensors = logical_tensors(parts.model, setup_.mesh, reader.has_moments() || header.step > 0);
  require_input(static_cast<std::int64_t>(reader.tensors().size()) == tensors,
                "{} has {} tensors, this model has {}: use the configuration of the checkpoint", directory,
                reader.tensors().size(), tensors);
  parts.zero.await_values();  // of a run that returns to this checkpoint
  parts.optimizer.load(reader);
  parts.zero.values_changed();
  state.restore(header.trainer_state, no_routing(config_));
  state.run_uuid = header.run_uuid;
  state.step = header.step;
  parts.optimizer.set_updates(state.updates);
  report_.note(fmt::format("resumed    {} (mesh {})", directory, header.mesh));
  if (!reader.has_moments()) report_.note("optimizer  new: the checkpoint contains only weights");
  if (parts.gemms.anew()) {
    report_.warn(fmt::format("no GEMM algorithms for this GPU in {}: they are chosen again, the last bits may differ",
                             parts.gemms.file().string()));
  }
  if (resume_ != "auto" && !header.unsound.empty()) {
    report_.warn("this checkpoint is not sound: " + header.unsound);
    state.soundness = {};  // whoever names it wants it
  }
  if (!same_data) state.soundness = {};  // losses of another task
  tell_changes(state);
  keep_schedule(state, before);
  tell_choices(state, before);
}

/// Whether the data are those of the checkpoint's run, where they may be others. Others under another name are reported
/// by tell_changes().
bool StartingPoint::check_data(const std::vector<DataFiles>& files, const std::string& tokenizer) const {
  const std::string directory = checkpoint_->directory().string(), own = checkpoint_->tokenizer_sha256();
  require_input(own.empty() || tokenizer.empty() || sha256(tokenizer) == own,
                "data.tokenizer = {} is not the tokenizer of {}: copy {}/{} to another folder, since later checkpoints "
                "replace it, and set data.tokenizer to the copy and the data that it encoded",
                config_.data.tokenizer, directory, directory, tokenizer_name);
  bool same = true;
  for (const DataFiles& before : RunState::data_of(checkpoint_->header().trainer_state)) {
    for (const DataFiles& now : files) {
      if (now.key != before.key || now.prefix != before.prefix || now.fingerprint == before.fingerprint) continue;
      require_input(config_.data.changed == "warn",
                    "{} = {}: the files have changed since {} was saved: restore the old ones, or set data.changed = "
                    "warn to continue with these",
                    now.key, now.prefix, directory);
      report_.warn(fmt::format("{} = {}: the files have changed since the checkpoint was saved", now.key, now.prefix));
      same = false;
    }
  }
  return same;
}

/// A resumed run whose model, data or optimizer keys differ is another run from there on: that is said. What only
/// trades memory for time is none of these.
void StartingPoint::tell_changes(RunState& state) const {
  constexpr std::array telling{"data.", "batch.", "balance.", "optim.", "run.seed", "run.precision", "run.gemm_choice"};
  constexpr std::array silent{"batch.micro",  "model.recompute", "model.loss_chunk", "optim.schedule_steps",
                              "data.changed", "data.tokenizer",  "data.chat",        "data.end_tokens"};
  const auto before = values_in(checkpoint_->header().config);
  for (const auto& [key, value] : values_in(config_text_)) {
    const bool belongs =
        describes_model(key) || std::ranges::any_of(telling, [&](const char* part) { return key.starts_with(part); });
    const bool tells = belongs && std::find(silent.begin(), silent.end(), key) == silent.end();
    const auto old = before.find(key);
    if (tells && old != before.end() && old->second != value) {
      report_.warn(fmt::format("{} = {} from now on; the checkpoint was trained with {}", key, value, old->second));
      if (!key.starts_with("optim.") && !key.starts_with("run.")) state.soundness = {};  // losses of another task
    }
  }
}

/// The schedule of the learning rate belongs to the checkpoint: more run.steps alone do not stretch it, which would
/// raise a rate that had come down.
void StartingPoint::keep_schedule(RunState& state, const Config& before) const {
  const std::int64_t given = config_.optim.schedule_steps, steps = config_.run.steps;
  if (state.step == 0) {  // it has followed none yet
    state.schedule_steps = given > 0 ? given : steps;
    return;
  }
  const std::int64_t made_for = state.schedule_steps > 0 ? state.schedule_steps : before.run.steps;
  state.schedule_steps = given > 0 ? given : made_for;
  if (state.step >= steps) return;
  const double lr = learning_rate(config_.optim, state.step, state.schedule_steps);
  const double was = learning_rate(before.optim, state.step, made_for);
  if (lr == 0 && config_.optim.lr > 0 && state.schedule_steps < steps) {
    report_.warn(
        fmt::format("the learning rate is 0 from step {} on: the schedule ends at step {}; set "
                    "optim.schedule_steps={} to make it end with the run, or optim.min_lr",
                    state.step + 1, state.schedule_steps, steps));
  } else if (lr != was) {
    report_.warn(
        fmt::format("the learning rate of step {} is {:.3g}; by the checkpoint's schedule, {} over {} steps, "
                    "it would be {:.3g}",
                    state.step + 1, lr, before.optim.schedule, made_for, was));
  } else if (state.schedule_steps != steps && config_.optim.schedule != "constant") {
    report_.note(
        fmt::format("schedule   {} over {} steps, as in the checkpoint; optim.schedule_steps={} makes it end with "
                    "the run",
                    config_.optim.schedule, state.schedule_steps, steps));
  }
}

/// moe.top_k_start goes by run.steps: with another number of steps tokens choose other numbers of experts.
void StartingPoint::tell_choices(const RunState& state, const Config& before) const {
  const std::int64_t steps = config_.run.steps, own_steps = before.run.steps;
  if (state.step >= steps) return;
  const std::int64_t now = choices_of_step(config_.moe, state.step, steps);
  const std::int64_t was = choices_of_step(config_.moe, state.step, own_steps);
  if (now == was) return;
  report_.warn(fmt::format("a token chooses {} experts in step {}; in the checkpoint's run of {} steps it would be {}",
                           now, state.step + 1, own_steps, was));
}

void StartingPoint::tidy() const {
  if (setup_.mesh.world.rank() != 0) return;
  report_.attempt([&] {
    if (checkpoint_) {
      const std::string name = checkpoint_name(checkpoint_->header().step);
      std::error_code absent;
      if (fs::equivalent(checkpoint_->directory(), root_ / name, absent)) set_latest(root_, name);
    }
    prune_checkpoints(root_, config_.checkpoint.keep);
  });
}

}  // namespace lyceum

#include "train/run/starting_point.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "config/binding.h"
#include "config/check.h"
#include "core/error.h"
#include "io/files/sha256.h"
#include "io/text/table.h"
#include "model/model_tensors.h"
#include "model/routing/routing_statistics.h"
#include "optim/checkpoint.h"
#include "parallel/comm/shared_work.h"
#include "train/step/schedule.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

/// Collective. Returns the identities of the run's token files, as rank 0 reads them, on all ranks.
std::vector<DataIdentity> files_of(const RunData& data, const DataConfig& config, const ProcessGroup& world) {
  std::vector<std::pair<const char*, const TokenSource*>> sources;
  const auto add = [&](const char* key, const TokenLoader& loader) {
    for (const TokenLoader::Source& source : loader.sources())
      sources.emplace_back(key, &source.samples->token_source());
  };
  add("data.train", *data.train);
  if (!config.valid.empty()) {  // otherwise validation samples are parts of the files of data.train
    for (const TokenLoader& loader : data.valid) add("data.valid", loader);
  }
  std::vector<std::string> fingerprints(sources.size());
  work_on_files_of_rank_zero(world, [&] {
    for (std::size_t s = 0; s < sources.size(); ++s) fingerprints[s] = sources[s].second->fingerprint();
  });
  std::vector<DataIdentity> files;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const auto& [key, file] = sources[s];
    files.push_back({.key = key, .prefix = file->prefix(), .fingerprint = world.broadcast(fingerprints[s], 0)});
  }
  return files;
}

/// Returns the resolved configuration of a checkpoint's run.
Config config_before(const CheckpointHeader& header) {
  Config config = parse_config_leniently(header.config);
  resolve(config, 1);
  return config;
}

std::string value_text(const std::string& value) { return value.empty() ? "empty" : value; }

/// Returns one "run.seed = 2 (was 1)" per change. A single change continues the line; several have a line each.
std::string list_text(std::span<const Change> changes) {
  std::string text;
  const char* separator = changes.size() > 1 ? "\n  " : " ";
  for (const Change& change : changes) {
    text +=
        fmt::format("{}{} = {} (was {})", separator, change.key, value_text(change.after), value_text(change.before));
  }
  return text;
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

StartingPoint::StartingPoint(const Config& config, const RunSetup& setup, RunReport& report, const RunData& data,
                             Choice choice)
    : config_(config),
      setup_(setup),
      report_(report),
      data_(data),
      resume_(choice == Choice::sound ? "auto" : config.checkpoint.resume),
      root_(checkpoint_root(config.run)),
      files_(files_of(data, config.data, setup.mesh.world)) {
  const ProcessGroup& world = setup.mesh.world;
  work_on_files_of_rank_zero(world, [&] { repair_checkpoints(root_); });
  const auto warn = [&](const std::string& warning) { report.warn(warning); };
  const auto chosen = choose_checkpoint(world, root_, resume_, warn, choice == Choice::sound);
  if (!chosen) return;
  work_on_files(world, [&] { checkpoint_.emplace(*chosen); });
  inspect_checkpoint_folder();
  const CheckpointHeader& header = checkpoint_->header();
  before_ = config_before(header);
  const std::vector<DataIdentity> old_files = RunState::data_of(header.trainer_state);
  for (const auto& [key, member] :
       {std::pair("data.train", &DataConfig::train), std::pair("data.valid", &DataConfig::valid)}) {
    std::string& before = before_.data.*member;
    if (same_sources(key, before, config.data.*member, old_files, files_)) before = config.data.*member;
  }
  changes_ = changes(before_, config);
  if (choice == Choice::sound) return;  // chosen among the checkpoints of this run itself
  require_same_run();
  require_same_model();
}

/// Collective. Sets in_run_folder_, newest_ and newest_run_ to what rank 0 finds in the folder of checkpoints.
void StartingPoint::inspect_checkpoint_folder() {
  std::string own, newest, newest_run;
  work_on_files_of_rank_zero(setup_.mesh.world, [&] {
    std::error_code absent;
    const std::string name = checkpoint_name(checkpoint_->header().step);
    if (fs::equivalent(checkpoint_->directory(), root_ / name, absent)) own = name;
    const std::vector<std::string> present = list_checkpoints(root_);
    if (!present.empty()) newest = present.front();
    for (auto at = present.begin(); at != present.end() && newest_run.empty(); ++at) {
      try {
        newest_run = CheckpointReader(root_ / *at).header().run_uuid;
      } catch (const Error&) {  // damaged: read the uuid from an older checkpoint
      }
    }
  });
  const ProcessGroup& world = setup_.mesh.world;
  in_run_folder_ = !world.broadcast(own, 0).empty();
  newest_ = world.broadcast(newest, 0);
  newest_run_ = world.broadcast(newest_run, 0);
}

/// Throws a usage Error if the run would be taken for the continuation of another one, or if their checkpoints would be
/// mixed in one folder. Not if the user names an unfinished checkpoint, or for converted weights: these begin a new
/// run.
void StartingPoint::require_same_run() const {
  const std::int64_t step = checkpoint_->header().step, steps = config_.run.steps;
  const bool finished = step >= steps;
  const std::string directory = checkpoint_->directory().string();
  require_usage(in_run_folder_ || newest_run_.empty() || newest_run_ == checkpoint_->header().run_uuid,
                "{} contains checkpoints of another run than {}: set another run.dir", root_.string(), directory);
  require_usage(in_run_folder_ || !finished,
                "checkpoint.resume = {}, which has {} steps, leaves nothing to train with run.steps = {}: raise "
                "run.steps above {}",
                resume_, step, steps, step);
  if (is_untrained() || (resume_ != "auto" && !finished)) return;
  std::vector<Change> refused;
  for (const Change& change : changes_) {
    const bool other_data = change.key == "data.train" && config_.data.changed == ChangedData::warn;
    const bool other_run = change.role == KeyRole::identity && !other_data;
    if (other_run || (finished && change.role != KeyRole::reported)) refused.push_back(change);
  }
  if (finished && step > steps && before_.run.steps != steps) {
    refused.push_back({{"run.steps", fmt::to_string(before_.run.steps), fmt::to_string(steps)}, KeyRole::tuning});
  }
  const std::int64_t length = RunState::schedule_of(checkpoint_->header().trainer_state);
  const std::int64_t given = config_.optim.schedule_steps;
  if (finished && length > 0 && given > 0 && given != length &&
      config_.optim.schedule != LearningRateSchedule::constant) {
    refused.push_back({{"optim.schedule_steps", fmt::to_string(length), fmt::to_string(given)}, KeyRole::tuning});
  }
  if (refused.empty()) return;
  std::string way_out =
      finished ? "set another run.dir to train it"
               : fmt::format("set another run.dir, with checkpoint.resume = {} to begin with its weights", directory);
  if (!finished && std::ranges::count(refused, "data.train", &Change::key) > 0) {
    way_out += ", or data.changed = warn to continue with this data.train, such as the same files at another path";
  }
  fail(ExitCode::usage, "{} {} a run with another configuration; {}; values that differ:{}", directory,
       finished ? "is the end of" : "belongs to", way_out, list_text(refused));
}

void StartingPoint::require_same_model() const {
  std::string wrong;  // the first tensor that differs
  std::set<std::string> names;
  for (const ModelTensor& tensor : model_tensors(config_)) {
    const CheckpointReader::Entry* entry = checkpoint_->find(tensor.name);
    names.insert(tensor.name);
    if (!wrong.empty() || (entry && entry->shape == tensor.shape)) continue;
    wrong = entry ? fmt::format("{} is {}, but {} in this model", tensor.name, entry->shape.text(), tensor.shape.text())
                  : fmt::format("it has no {}", tensor.name);
  }
  for (const CheckpointReader::Entry& entry : checkpoint_->tensors()) {
    if (!wrong.empty() || is_optimizer_state(entry.name) || names.contains(entry.name)) continue;
    wrong = fmt::format("this model has no {}", entry.name);
  }
  if (wrong.empty()) return;
  std::vector<Change> model = changes_;
  std::erase_if(model, [](const Change& change) { return !describes_model(change.key); });
  const std::string directory = checkpoint_->directory().string();
  require_input(!model.empty(), "{} contains another model: {}: use the configuration of the checkpoint", directory,
                wrong);
  fail(ExitCode::usage, "{} contains another model ({}): set these keys as in its run:{}", directory, wrong,
       list_text(model));
}

std::vector<ExpertLoad> StartingPoint::expert_load() const {
  if (!checkpoint_) return {};
  return RunState::load_of(checkpoint_->header().trainer_state);
}

RunState StartingPoint::start(const Parts& parts) const {
  RunState state;
  state.data = files_;
  checkpoint_ ? resume(state, parts) : start_new_run(state, parts);
  return state;
}

void StartingPoint::start_new_run(RunState& state, const Parts& parts) const {
  // A new run next to old checkpoints would mix two runs: the next start would resume from the newest of all.
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
  require_input(resume_ == "auto" || newest_ <= checkpoint_name(header.step),
                "{} contains {}, which is newer than the checkpoint to resume from: {}set another run.dir, or move the "
                "newer ones away",
                root_.string(), newest_,
                newest_run_ == header.run_uuid ? "set checkpoint.resume = auto to continue from it, " : "");
  const bool same_data = compare_data();
  require_input(!reader.has_optimizer_state() || before_.optim.train_only == config_.optim.train_only,
                "optim.train_only differs from that of {}: start a new run from its weights with lyceum convert reset",
                directory);
  parts.zero.await_values();  // in a rollback, values of the last step may still be in flight
  const std::atomic<std::int64_t> progress = 0;
  SharedWork reading(setup_.mesh.world, progress);
  load_checkpoint(parts.optimizer, reader, [&](const auto& read) { reading.run(read); });
  reading.finish();
  parts.zero.values_changed();
  state.restore(header.trainer_state, no_routing(config_));
  state.run_uuid = header.run_uuid;
  state.step = header.step;
  parts.optimizer.set_updates(state.updates);
  report_.note(fmt::format("resumed    {} (mesh {})", directory, header.mesh));
  if (!reader.has_optimizer_state()) report_.note("optimizer  new: the checkpoint contains only weights");
  std::string zero;
  for (const auto& [name, tensors] : states_of_other_rules(config_, reader)) {
    zero += fmt::format("{}{} of {}", zero.empty() ? "" : ", ", name, count_text(tensors, "tensor"));
  }
  if (!zero.empty()) report_.note("optimizer  starts at zero: " + zero + "; the checkpoint has states of another rule");
  if (parts.gemms.nothing_pinned()) {
    report_.warn(fmt::format(
        "no GEMM algorithms for this GPU in {}: they are chosen again, so results may differ in the last bits",
        parts.gemms.file().string()));
  }
  if (resume_ != "auto" && !header.unsound.empty()) {
    report_.warn("this checkpoint is not sound: " + header.unsound);
    state.forget_losses();  // the user has named it, so the run may continue from it
  }
  if (!same_data) state.forget_losses();  // losses on other data are not comparable
  report_changes(state);
  choose_schedule_length(state);
  report_choices(state);
}

/// Returns true if the token files have the contents that they had when the checkpoint was saved. Warns of files that
/// have changed if data.changed is `warn`, or else throws a bad_input Error; also throws if data.tokenizer is another
/// one. Only compares files of equal names: other names are changes of a key.
bool StartingPoint::compare_data() const {
  const std::string directory = checkpoint_->directory().string(), own = checkpoint_->tokenizer_sha256();
  const std::string& tokenizer = data_.tokenizer;
  require_input(own.empty() || tokenizer.empty() || sha256(tokenizer) == own,
                "data.tokenizer = {} is not the tokenizer of {}: copy {}/{} to another folder, since later checkpoints "
                "replace it, set data.tokenizer to the copy, and use data that it encoded",
                config_.data.tokenizer, directory, directory, tokenizer_name);
  const bool finished = checkpoint_->header().step >= config_.run.steps;
  const std::vector<DataIdentity> changed =
      changed_data(RunState::data_of(checkpoint_->header().trainer_state), files_);
  for (const DataIdentity& now : changed) {
    require_input(!finished || now.key != "data.train",
                  "{} = {}: the files have changed since {} was saved, and its run is finished: restore the old ones, "
                  "or set another run.dir to train on these",
                  now.key, now.prefix, directory);
    require_input(config_.data.changed == ChangedData::warn,
                  "{} = {}: the files have changed since {} was saved: restore the old ones, or set data.changed = "
                  "warn to continue with these",
                  now.key, now.prefix, directory);
    report_.warn(fmt::format("{} = {}: the files have changed since the checkpoint was saved", now.key, now.prefix));
  }
  return changed.empty();
}

/// Returns the number of sequences over which balance.scope = batch counts together, and global in the first pass of a
/// step: those of all data ranks in one pass. `mesh`: MeshShape::text(). Returns 0 if the text does not state the data
/// ranks.
std::int64_t sequences_of_pass(const Config& config, const std::string& mesh) {
  const std::size_t data = mesh.find("dp");
  return data == std::string::npos ? 0 : config.batch.micro * std::atoll(mesh.c_str() + data + 2);
}

/// Warns of every change that makes a resumed run train differently from now on, and forgets earlier losses that are no
/// longer comparable. For a checkpoint that no run has trained, only changes of the model matter.
void StartingPoint::report_changes(RunState& state) const {
  for (const Change& change : changes_) {
    if (is_untrained() && !describes_model(change.key)) continue;
    report_.warn(
        fmt::format("{} = {} from now on (was {})", change.key, value_text(change.after), value_text(change.before)));
    const bool same_task =
        change.key.starts_with("optim.") || change.key.starts_with("run.") || change.role == KeyRole::reported;
    if (!same_task) state.forget_losses();
  }
  const std::int64_t was = sequences_of_pass(before_, checkpoint_->header().mesh);
  const std::int64_t now = sequences_of_pass(config_, setup_.mesh.shape.text(setup_.mesh.world.size()));
  const BalanceScope scope = effective(config_).balance.scope;
  if (is_untrained() || scope == BalanceScope::sequence || was == now) return;
  report_.warn(
      fmt::format("balance.scope = {}: from now on, losses count the tokens of {} sequences together (was {}){}: "
                  "batch.micro times the data ranks",
                  name_of(scope), now, was, scope == BalanceScope::global ? " in the first pass of a step" : ""));
}

/// Sets state.schedule_steps. A resumed run keeps the length of the checkpoint's schedule unless optim.schedule_steps
/// is set: if more run.steps stretched the schedule, a learning rate that had decayed would rise again. Reports
/// differences.
void StartingPoint::choose_schedule_length(RunState& state) const {
  const std::int64_t given = config_.optim.schedule_steps, steps = config_.run.steps;
  if (state.step == 0) {  // no step has used a schedule yet
    state.schedule_steps = given > 0 ? given : steps;
    return;
  }
  const std::int64_t made_for = state.schedule_steps > 0 ? state.schedule_steps : before_.run.steps;
  state.schedule_steps = given > 0 ? given : made_for;
  if (state.step >= steps) return;
  const double lr = learning_rate(config_.optim, state.step, state.schedule_steps);
  const double was = learning_rate(before_.optim, state.step, made_for);
  if (lr == 0 && config_.optim.lr > 0 && state.schedule_steps < steps) {
    report_.warn(
        fmt::format("the learning rate is 0 from step {} on: the schedule ends at step {}; set "
                    "optim.schedule_steps={} to make it end with the run, or optim.min_lr",
                    state.step + 1, state.schedule_steps, steps));
  } else if (lr != was) {
    report_.warn(
        fmt::format("the learning rate of step {} is {:.3g}; by the checkpoint's schedule, {} over {} steps, "
                    "it would be {:.3g}",
                    state.step + 1, lr, name_of(before_.optim.schedule), made_for, was));
  } else if (state.schedule_steps != steps && config_.optim.schedule != LearningRateSchedule::constant) {
    report_.note(
        fmt::format("schedule   {} over {} steps, as in the checkpoint; optim.schedule_steps={} makes it end with "
                    "the run",
                    name_of(config_.optim.schedule), state.schedule_steps, steps));
  }
}

/// Warns if tokens choose another number of experts than in the checkpoint's run: the growth from moe.top_k_start
/// depends on run.steps.
void StartingPoint::report_choices(const RunState& state) const {
  const std::int64_t steps = config_.run.steps, own_steps = before_.run.steps;
  if (state.step >= steps) return;
  const std::int64_t now = choices_of_step(config_.moe, state.step, steps);
  const std::int64_t was = choices_of_step(config_.moe, state.step, own_steps);
  if (now == was) return;
  report_.warn(fmt::format("a token chooses {} experts in step {}; in the checkpoint's run of {} steps it would be {}",
                           now, state.step + 1, own_steps, was));
}

void StartingPoint::complete_interrupted_save() const {
  work_on_files_of_rank_zero(setup_.mesh.world, [&] {
    report_.attempt([&] {
      if (in_run_folder_) set_latest(root_, checkpoint_name(checkpoint_->header().step));
      prune_checkpoints(root_, config_.checkpoint.keep);
    });
  });
}

}  // namespace lyceum

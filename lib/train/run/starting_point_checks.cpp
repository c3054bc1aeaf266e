// The part of StartingPoint that compares a run with that of its checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <span>

#include "config/binding.h"
#include "config/value_text.h"
#include "core/error.h"
#include "io/data/tokens/data_sources.h"
#include "io/data/tokens/token_formats.h"
#include "io/files/sha256.h"
#include "model/model_tensors.h"
#include "optim/checkpoint.h"
#include "parallel/comm/shared_work.h"
#include "train/run/starting_point.h"
#include "train/step/schedule.h"

namespace lyceum {

namespace {

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
    refused.push_back(
        {{schedule_key(run_config_, stage_, "optim.schedule_steps"), fmt::to_string(length), fmt::to_string(given)},
         KeyRole::tuning});
  }
  if (refused.empty()) return compare_stages();
  std::string way_out =
      finished ? "set another run.dir to train it"
               : fmt::format("set another run.dir, with checkpoint.resume = {} to begin with its weights", directory);
  if (!finished && std::ranges::count(refused, "data.train", &Change::key) > 0) {
    way_out += ", or data.changed = warn to continue with this data.train, such as the same files at another path";
  }
  fail(ExitCode::usage, "{} {} a run with another configuration; {}; values that differ:{}", directory,
       finished ? "is the end of" : "belongs to", way_out, list_text(refused));
}

/// Throws a usage Error if the steps up to the checkpoint were made with other stages than run_config_ has.
void StartingPoint::compare_stages() const {
  const std::int64_t step = checkpoint_->header().step;
  std::vector<Difference> past = changed_past(run_before_, run_config_, step);
  const auto of_data = [](const Difference& difference) { return difference.key.ends_with("data.train"); };
  std::erase_if(past, [&](const Difference& difference) {
    return of_data(difference) && (config_.data.changed == ChangedData::warn || same_past_data(difference));
  });
  if (past.empty()) return;
  const char* const moved = std::ranges::all_of(past, of_data)
                                ? ", or data.changed = warn to continue although past data have other names"
                                : "";
  std::string text;
  for (const Difference& difference : past) {
    text += fmt::format("{}{} = {} (was {})", text.empty() ? "" : ", ", difference.key, value_text(difference.after),
                        value_text(difference.before));
  }
  fail(ExitCode::usage,
       "{}: its {} steps were made with other stages: restore these values (a stage can still be added from step {} "
       "on), or set another run.dir, with checkpoint.resume = {} to begin with its weights{}: {}",
       checkpoint_->directory().string(), step, step + 1, checkpoint_->directory().string(), moved, text);
}

/// Collective. True if data.train of a past stage names the same files as in the checkpoint's run, under other
/// prefixes. Files that no later stage reads are opened on rank 0, if they exist.
bool StartingPoint::same_past_data(const Difference& difference) const {
  const char* const key = "data.train";
  std::vector<DataIdentity> now = later_files_;
  for (const auto& [prefix, weight] : data_sources(key, difference.after)) {
    const auto known = [&, name = prefix](const DataIdentity& one) { return one.key == key && one.prefix == name; };
    if (std::ranges::any_of(now, known)) continue;
    std::string fingerprint;
    work_on_files_of_rank_zero(setup_.mesh.world, [&, name = prefix] {
      if (has_tokens(name)) fingerprint = open_tokens(name)->fingerprint();
    });
    now.push_back({.key = key, .prefix = prefix, .fingerprint = setup_.mesh.world.broadcast(fingerprint, 0)});
  }
  return same_sources(key, difference.before, difference.after, read_files_, now);
}

/// Throws a usage Error if the adapters of the checkpoint cannot continue as those of the configuration. New adapters
/// may be added to a checkpoint of weights alone.
void StartingPoint::require_same_adapters() const {
  std::vector<Change> adapters = changes_;
  std::erase_if(adapters, [](const Change& change) { return !change.key.starts_with("optim.lora_"); });
  const bool had_any = before_.optim.lora_rank > 0;
  if (adapters.empty() || (!had_any && !checkpoint_->has_optimizer_state())) return;
  const std::string directory = checkpoint_->directory().string();
  fail(ExitCode::usage,
       "{} has {} adapters: make a run of its weights with lyceum convert {} and start from that; values that "
       "differ:{}",
       directory, had_any ? "other" : "no", had_any ? "merge" : "reset", list_text(adapters));
}

void StartingPoint::require_same_model() const {
  std::string wrong;  // the first tensor that differs
  std::set<std::string> names;
  for (const ModelTensor& tensor : model_tensors(config_)) {
    const CheckpointReader::Entry* entry = checkpoint_->find(tensor.name);
    names.insert(tensor.name);
    if (is_adapter(tensor.name) && before_.optim.lora_rank == 0) continue;  // new
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

/// Returns true if the token files have the contents that they had when the checkpoint was saved. Warns of files that
/// have changed if data.changed is `warn`, or else throws a bad_input Error; also throws if data.tokenizer is another
/// one. Only compares files of equal names: other names are changes of a key.
bool StartingPoint::compare_data() const {
  const std::string directory = checkpoint_->directory().string(), own = checkpoint_->tokenizer_sha256();
  const std::string& tokenizer = data_->tokenizer;
  require_input(own.empty() || tokenizer.empty() || sha256(tokenizer) == own,
                "data.tokenizer = {} is not the tokenizer of {}: copy {}/{} to another folder, since later checkpoints "
                "replace it, set data.tokenizer to the copy, and use data that it encoded",
                config_.data.tokenizer, directory, directory, tokenizer_name);
  const bool finished = checkpoint_->header().step >= config_.run.steps;
  const std::vector<DataIdentity> changed = changed_data(read_files_, later_files_);
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
  const std::int64_t given = config_.optim.schedule_steps;
  const StageSchedule schedule = schedule_of_stage(run_config_, stage_);
  if (state.step == 0) {  // no step has used a schedule yet
    state.schedule_steps = schedule.steps;
    return;
  }
  const StageSchedule old = schedule_of_stage(run_before_, stage_of_step(run_before_, state.step));
  const std::int64_t made_for = state.schedule_steps > 0 ? state.schedule_steps : old.end - old.begin;
  state.schedule_steps = given > 0 ? given : made_for;
  // If the next step begins another stage, its learning rate is not one that the checkpoint's schedule describes.
  if (state.step >= run_config_.run.steps || stage_of_step(run_config_, state.step + 1) != stage_) return;
  const double lr = learning_rate(config_.optim, state.step - schedule.begin, state.schedule_steps);
  const double was = learning_rate(before_.optim, state.step - old.begin, made_for);
  const std::int64_t last = schedule.begin + state.schedule_steps, length = schedule.end - schedule.begin;
  const std::string key = schedule_key(run_config_, stage_, "optim.schedule_steps");
  const std::string end = schedule.end == run_config_.run.steps ? "the run" : "its stages";
  if (lr == 0 && config_.optim.lr > 0 && last < schedule.end) {
    report_.warn(
        fmt::format("the learning rate is 0 from step {} on: the schedule ends at step {}; set "
                    "{}={} to make it end with {}, or optim.min_lr",
                    state.step + 1, last, key, length, end));
  } else if (lr != was) {
    report_.warn(
        fmt::format("the learning rate of step {} is {:.3g}; by the checkpoint's schedule, {} over {} steps, "
                    "it would be {:.3g}",
                    state.step + 1, lr, name_of(before_.optim.schedule), made_for, was));
  } else if (last != schedule.end && config_.optim.schedule != LearningRateSchedule::constant) {
    report_.note(fmt::format("schedule   {} over {} steps, as in the checkpoint; {}={} makes it end with {}",
                             name_of(config_.optim.schedule), state.schedule_steps, key, length, end));
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

}  // namespace lyceum

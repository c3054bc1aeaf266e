// The part of the trainer that checks training stages and passes from one to the next.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "config/check.h"
#include "config/continuation.h"
#include "plan/mesh_plan.h"
#include "train/eval/evaluator.h"
#include "train/run/preflight.h"
#include "train/run/trainer.h"

namespace lyceum {

namespace {

/// Throws a bad_input Error if none of the targets that a validation reads from a source counts in the loss. Without
/// this check the run would fail at its first validation.
void require_validation_targets(const Config& config, const RunData& data) {
  for (const TokenLoader& loader : data.valid) {
    const std::int64_t samples = evaluated_samples(config, loader, config.eval.batches);
    const SampleOrder order = loader.order().spread(samples);
    bool any = !loader.masked();
    for (std::int64_t i = 0; i < samples && !any; ++i) any = loader.sources()[0].samples->any_target(order(i), 1);
    require_input(any,
                  "{}: none of the tokens in the {} samples of a validation counts in the loss: raise eval.batches",
                  loader.token_source().prefix(), samples);
  }
}

}  // namespace

/// Returns what makes the stages [first, end) impossible on these ranks.
std::vector<std::string> Trainer::problems_of_stages(int first, int end) const {
  const int world = setup_.mesh.world.size();
  std::vector<std::string> found = problems(run_config_, world, first);
  double memory = 0;  // of the rank that has least; equal on all ranks
  for (const RankResources& each : setup_.resources) memory = memory > 0 ? std::min(memory, each.memory) : each.memory;
  for (int stage = first; stage < end && found.empty() && memory > 0; ++stage) {
    found.push_back(shortage(plan_mesh(config_of_stage(run_config_, stage), world, {}), memory, "each rank"));
    if (found.back().empty()) found.pop_back();
  }
  return found;
}

/// Collective. Opens the data of the stages from `first` on that are not open yet, and checks them and the ranks. Call
/// before memory is allocated.
void Trainer::open_stages(int first, std::vector<RunData>& data) {
  const int end = first_open_ > 0 ? first_open_ : stage_count(run_config_) + 1;
  const ProcessGroup& world = setup_.mesh.world;
  open_data_of_stages(run_config_, setup_, first, data, open_sources_);
  for (int stage = first; stage < end; ++stage) {
    const Config own = config_of_stage(run_config_, stage);
    RunData& own_data = data[static_cast<std::size_t>(stage) - 1];
    require_validation_targets(own, own_data);
    require_matching_steps(own, world, *own_data.train);
    identify(own_data, own.data, world, open_sources_);
  }
  first_open_ = first;
}

void Trainer::set_stage(int stage) {
  stage_ = stage;
  config_ = config_of_stage(run_config_, stage);
  schedule_ = schedule_of_stage(run_config_, stage);
  train_step_.reset();  // first, so that its memory can be used again
  model_.set_stage(config_);
  zero_.set_micro_batches(zero_options(config_, setup_.mesh).micro_batches);
  train_step_.emplace(config_, setup_, model_, zero_, optimizer_);
  if (throughput_) throughput_.emplace(config_, peak_);
}

/// Returns the number of the first new source of data.train: the one after those that the run has read. Returns nothing
/// if a checkpoint of an older version does not have these.
std::optional<std::int64_t> first_new_source(const RunState& state) {
  std::int64_t last = -1;
  for (const SourceProgress& source : state.data_begin.sources) {
    if (source.order < 0) return {};
    last = std::max(last, source.order);
  }
  for (const DataIdentity& file : state.data) {
    if (file.key != "data.train") continue;
    if (file.order < 0) return {};
    last = std::max(last, file.order);
  }
  return last + 1;
}

/// Begins to read the data of the present stage at state_.data_begin, and sets state_.data to them. Sources that the
/// run has read, if under another prefix, keep their order. Others get the next numbers, which they also have if past
/// stages name their data otherwise.
void Trainer::begin_data() {
  const TokenLoader loader = continued(*data().train, state_.data_begin);
  std::vector<TokenLoader::Source> sources(loader.sources().begin(), loader.sources().end());
  std::vector<DataIdentity> files = data().files;  // begins with the sources of data.train
  std::optional<std::int64_t> fresh = first_new_source(state_);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const auto was_read = [&](const SourceProgress& known) {
      return known.prefix == files[s].prefix || known.fingerprint == files[s].fingerprint;
    };
    const auto find = [&](auto member) {
      return std::ranges::find_if(state_.data, [&](const DataIdentity& known) {
        return known.key == files[s].key && known.*member == files[s].*member;
      });
    };
    auto known = find(&DataIdentity::prefix);
    if (known == state_.data.end()) known = find(&DataIdentity::fingerprint);
    if (known != state_.data.end() && known->order >= 0) {
      sources[s].order = sources[s].order.of_source(static_cast<std::size_t>(known->order));
    } else if (fresh && std::ranges::none_of(state_.data_begin.sources, was_read)) {
      sources[s].order = sources[s].order.of_source(static_cast<std::size_t>((*fresh)++));
    }
    files[s].order = static_cast<std::int64_t>(sources[s].order.source());
  }
  loader_.emplace(std::move(sources), state_.data_begin.samples);
  state_.data = std::move(files);
}

void Trainer::begin_next_stage() {
  const int next = stage_of_step(run_config_, state_.step + 1);
  if (next == stage_) return;
  const Config before = config_;
  const bool new_schedule = schedule_of_stage(run_config_, next).begin != schedule_.begin;
  set_stage(next);
  if (new_schedule) state_.schedule_steps = schedule_of_stage(run_config_, next).steps;
  const bool other_samples = !same_samples(before, config_);
  if (other_samples) {
    state_.data_begin = progress_at(*loader_, state_.data_begin, state_.samples);
    begin_data();
  }
  const std::vector<Change> changed = changes(before, config_);
  const bool same_task = std::ranges::all_of(changed, [](const Change& c) { return c.key.starts_with("optim."); });
  if (!same_task) state_.forget_losses();  // they are not comparable with later ones
  state_.stage = next;
  new_shapes_ = state_.step;
  report_.begin_stage(run_config_, next, other_samples ? &data() : nullptr);
}

/// Makes an earlier stage the present one, in a rollback. The data of all steps so far are skipped: its samples
/// continue behind them. state_.samples and state_.data_begin must still be those of the later stage.
void Trainer::return_to_stage(int stage) {
  const Config before = config_;
  set_stage(stage);
  state_.stage = stage;
  if (same_samples(before, config_)) return;
  state_.data_begin = progress_at(*loader_, state_.data_begin, state_.samples);
  begin_data();
}

}  // namespace lyceum

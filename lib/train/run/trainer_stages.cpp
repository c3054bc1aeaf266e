// The part of the trainer that passes from one training stage to the next.
#include <algorithm>

#include "config/continuation.h"
#include "train/run/trainer.h"

namespace lyceum {

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
    loader_ = continued(*data().train, state_.data_begin);
    state_.data = identities_of(data(), config_.data, setup_.mesh.world);
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
  loader_ = continued(*data().train, state_.data_begin);
}

}  // namespace lyceum

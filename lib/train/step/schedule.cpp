#include "train/step/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/error.h"

namespace lyceum {

double learning_rate(const OptimConfig& optim, std::int64_t step, std::int64_t steps) {
  if (step < optim.warmup_steps) {
    const auto warm = static_cast<double>(optim.warmup_steps);
    if (optim.warmup_from > 0) {
      return optim.warmup_from + (optim.lr - optim.warmup_from) * static_cast<double>(step) / warm;
    }
    return optim.lr * static_cast<double>(step + 1) / warm;
  }
  const auto at = static_cast<double>(step), end = static_cast<double>(steps);
  switch (optim.schedule) {
    case LearningRateSchedule::step: {
      const double decayed = optim.lr * (at >= 0.8 * end ? 0.316 : 1.0) * (at >= 0.9 * end ? 0.316 : 1.0);
      return std::max(optim.min_lr, decayed);
    }
    case LearningRateSchedule::cosine: {
      const auto warm = static_cast<double>(optim.warmup_steps);
      const double progress = end - 1 > warm ? std::min(1.0, (at - warm) / (end - 1 - warm)) : 1.0;
      return optim.min_lr + 0.5 * (optim.lr - optim.min_lr) * (1 + std::cos(std::numbers::pi * progress));
    }
    case LearningRateSchedule::wsd: {
      const double decay = optim.decay_steps > 0 ? static_cast<double>(optim.decay_steps) : std::max(1.0, 0.1 * end);
      return optim.min_lr + (optim.lr - optim.min_lr) * std::clamp((end - 1 - at) / decay, 0.0, 1.0);
    }
    default: return optim.lr;  // constant
  }
}

std::vector<std::string> schedule_warnings(const OptimConfig& optim, std::int64_t run_steps, std::int64_t steps,
                                           std::int64_t first, const ScheduleNames& names) {
  std::vector<std::string> doubts;
  const auto doubt = [&]<class... Args>(bool is, fmt::format_string<Args...> text, Args&&... args) {
    if (is) doubts.push_back(fmt::format(text, std::forward<Args>(args)...));
  };
  const std::int64_t warm = optim.warmup_steps;
  const std::string &of = names.prefix, &end = names.end;
  const bool decays = optim.schedule != LearningRateSchedule::constant;
  if (!(optim.lr > 0)) return doubts;
  if (warm > run_steps && first < warm) {
    doubt(true,
          "{}optim.warmup_steps = {} is more than {} = {}: the learning rate ends at {:.3g}, below optim.lr = {:.3g}",
          of, warm, end, run_steps, learning_rate(optim, run_steps - 1, steps), optim.lr);
  } else if (first <= warm) {
    doubt(decays && warm > 0 && steps <= warm,
          "{}optim.warmup_steps = {} fills the schedule of {} steps: the learning rate falls to {:.3g} as soon as it "
          "reaches optim.lr = {:.3g}",
          of, warm, steps, learning_rate(optim, warm, steps), optim.lr);
    const double decay =
        optim.decay_steps > 0 ? static_cast<double>(optim.decay_steps) : 0.1 * static_cast<double>(steps);
    doubt(
        optim.schedule == LearningRateSchedule::wsd && steps > warm && decay > static_cast<double>(steps - warm),
        "the decay of {:.0f} steps ({}optim.decay_steps) begins before the warm-up of {} steps ends, in a schedule of "
        "{} steps: the learning rate falls from {:.3g} to {:.3g} after the warm-up",
        decay, of, warm, steps, optim.lr, learning_rate(optim, warm, steps));
    doubt(optim.schedule == LearningRateSchedule::step && steps > warm &&
              static_cast<double>(warm) > 0.8 * static_cast<double>(steps),
          "{}optim.warmup_steps = {} ends after 80 % of the schedule of {} steps, when the learning rate has "
          "been reduced already: it falls to {:.3g} after the warm-up",
          of, warm, steps, learning_rate(optim, warm, steps));
  }
  doubt(first == 0 && warm < steps && steps < run_steps && decays && learning_rate(optim, steps, steps) == 0,
        "the learning rate is 0 from step {} on: the schedule of {} steps ({}optim.schedule_steps) ends before {} = {}",
        names.before + steps, steps, of, end, run_steps);
  doubt(optim.decay_steps > 0 && optim.schedule != LearningRateSchedule::wsd,
        "{0}optim.decay_steps = {1} has no effect with optim.schedule = {2}: set {0}optim.schedule = wsd", of,
        optim.decay_steps, name_of(optim.schedule));
  doubt(optim.warmup_from > 0 && warm == 0, "{0}optim.warmup_from = {1} has no effect with {0}optim.warmup_steps = 0",
        of, optim.warmup_from);
  doubt(optim.min_lr > 0 && !decays, "optim.min_lr = {} has no effect with optim.schedule = constant", optim.min_lr);
  return doubts;
}

std::vector<std::string> schedule_warnings_of_stages(const Config& config, std::int64_t first, std::int64_t steps) {
  std::vector<std::string> doubts;
  const int present = stage_of_step(config, first + 1);
  for (int stage = present; stage <= stage_count(config); ++stage) {
    const StageSchedule schedule = schedule_of_stage(config, stage);
    const bool starts_now = first_step_of(config, stage) == schedule.begin + 1;
    if (stage > present && !starts_now) continue;  // the schedule of an earlier stage goes on
    const std::int64_t done = std::max(first - schedule.begin, std::int64_t{0});
    const bool to_the_end = schedule.begin == 0 && schedule.end == config.run.steps;
    const ScheduleNames names{.prefix = schedule_key(config, stage, ""),
                              .end = to_the_end ? "run.steps" : "the number of steps of its stages",
                              .before = schedule.begin};
    for (const std::string& doubt :
         schedule_warnings(config_of_stage(config, stage).optim, schedule.end - schedule.begin,
                           stage == present && done > 0 ? steps : schedule.steps, done, names)) {
      doubts.push_back(stage > 1 ? fmt::format("stage {}: {}", stage, doubt) : doubt);
    }
  }
  return doubts;
}

std::int64_t choices_of_step(const MoeConfig& moe, std::int64_t step, std::int64_t steps) {
  if (moe.top_k_start == 0) return moe.top_k;
  const std::int64_t last = std::max<std::int64_t>(steps - 1, 1), at = std::min(step, last);
  return (2 * (moe.top_k_start * (last - at) + moe.top_k * at) + last) / (2 * last);  // half up, in whole numbers
}

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// Returns the learning rate of step `step` (counted from 0) in a schedule of `steps` steps. It first rises linearly to
/// lr over warmup_steps: from lr / warmup_steps in the first step to lr in the last step of the warm-up; or, with
/// warmup_from, from that rate in the first step to lr in the first step after the warm-up. From then on it depends on
/// optim.schedule:
///   constant  lr
///   step      lr, times 0.316 from 80 % of the steps on and once more from 90 % on, but at least min_lr [DeepSeekMoE]
///   cosine    half a cosine from lr to min_lr at the last step
///   wsd       lr, then linearly to min_lr at the last step [MiniCPM]; the decay takes decay_steps steps, or a tenth of
///             all steps if that is 0
/// It stays constant after the last step.
double learning_rate(const OptimConfig& optim, std::int64_t step, std::int64_t steps);

/// The names of keys and steps in the texts of schedule_warnings().
struct ScheduleNames {
  std::string prefix{};           // of keys that start a schedule: "stage.2." for one that begins with stage 2
  std::string end = "run.steps";  // "run.steps", or "the number of steps of its stages" if it has not all steps
  std::int64_t before = 0;        // steps of the run before the first one of the schedule
};
/// Returns warnings about a run of the steps [first, run_steps) with a schedule of `steps` steps: one for each reason
/// why the learning rate does not reach optim.lr, drops abruptly, or is 0 before the run ends, and one for each key
/// without effect. Empty if optim.lr is 0.
std::vector<std::string> schedule_warnings(const OptimConfig& optim, std::int64_t run_steps, std::int64_t steps,
                                           std::int64_t first = 0, const ScheduleNames& names = {});

/// Returns schedule_warnings() of the present schedule and of those of later training stages, for the steps of a run
/// after its first `first`. Warnings about a later stage begin with "stage 2: ". `config`: that of the run, with all
/// stages. `steps`: the length of the present schedule.
std::vector<std::string> schedule_warnings_of_stages(const Config& config, std::int64_t first, std::int64_t steps);

/// Returns the number of experts that a token chooses in step `step` (counted from 0) of `steps`. It rises linearly
/// from top_k_start to top_k at the last step, rounded half up, and then stays constant [SMoE-Dropout]. It is always
/// top_k if top_k_start is 0.
std::int64_t choices_of_step(const MoeConfig& moe, std::int64_t step, std::int64_t steps);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/moe.h"
#include "config/optim.h"

namespace lyceum {

/// Learning rate of step `step` (counted from 0) of a schedule of `steps`: linear warm-up, then
///   constant  lr
///   step      lr, × 0.316 from 80 % of the steps, again from 90 % [DeepSeekMoE]
///   cosine    from lr to min_lr at the last step
///   wsd       lr, then straight down to min_lr at the last step, over decay_steps or a tenth [MiniCPM]
/// Beyond the last step it stays what it was there.
double learning_rate(const OptimConfig& optim, std::int64_t step, std::int64_t steps);

/// Returns a warning for each reason why steps `first` to `run_steps` of a schedule of `steps` do not reach optim.lr,
/// and for each key without effect. A learning rate of 0 has none.
std::vector<std::string> schedule_doubts(const OptimConfig& optim, std::int64_t run_steps, std::int64_t steps,
                                         std::int64_t first = 0);

/// Experts that a token chooses in step `step` (counted from 0) of `steps`: from top_k_start, if that is above 0, to
/// top_k on a straight line, rounded half up [SMoE-Dropout]. Beyond the last step it stays.
std::int64_t choices_of_step(const MoeConfig& moe, std::int64_t step, std::int64_t steps);

}  // namespace lyceum

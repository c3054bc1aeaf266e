#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace lyceum {

double learning_rate(const OptimConfig& optim, std::int64_t step, std::int64_t steps) {
  if (step < optim.warmup_steps) {
    return optim.lr * static_cast<double>(step + 1) / static_cast<double>(optim.warmup_steps);
  }
  const auto at = static_cast<double>(step), end = static_cast<double>(steps);
  if (optim.schedule == "constant") return optim.lr;
  if (optim.schedule == "step") {
    const double decayed = optim.lr * (at >= 0.8 * end ? 0.316 : 1.0) * (at >= 0.9 * end ? 0.316 : 1.0);
    return std::max(optim.min_lr, decayed);
  }
  if (optim.schedule == "wsd") {
    const double decay = optim.decay_steps > 0 ? static_cast<double>(optim.decay_steps) : std::max(1.0, 0.1 * end);
    return optim.min_lr + (optim.lr - optim.min_lr) * std::clamp((end - 1 - at) / decay, 0.0, 1.0);
  }
  require_usage(optim.schedule == "cosine", "optim.schedule = {}: must be step, cosine, wsd or constant",
                optim.schedule);
  const auto warm = static_cast<double>(optim.warmup_steps);
  const double progress = end - 1 > warm ? std::min(1.0, (at - warm) / (end - 1 - warm)) : 1.0;
  return optim.min_lr + 0.5 * (optim.lr - optim.min_lr) * (1 + std::cos(std::numbers::pi * progress));
}

std::int64_t choices_of_step(const MoeConfig& moe, std::int64_t step, std::int64_t steps) {
  if (moe.top_k_start == 0) return moe.top_k;
  const std::int64_t last = std::max<std::int64_t>(steps - 1, 1), at = std::min(step, last);
  return (2 * (moe.top_k_start * (last - at) + moe.top_k * at) + last) / (2 * last);  // half up, in whole numbers
}

}  // namespace lyceum

#include "train/step/recent_steps.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "core/real_text.h"

namespace lyceum {

namespace {

/// Returns mean + optim.skip_above · standard deviation of the last optim.skip_window values.
double limit_of(const std::deque<double>& values, const OptimConfig& optim) {
  const auto first = values.end() - optim.skip_window;
  const auto count = static_cast<double>(optim.skip_window);
  const double mean = std::accumulate(first, values.end(), 0.0) / count;
  const double squares = std::accumulate(
      first, values.end(), 0.0, [&](double sum, double value) { return sum + (value - mean) * (value - mean); });
  return mean + optim.skip_above * std::sqrt(squares / (count - 1));
}

}  // namespace

void RecentSteps::add(double loss, double norm, const OptimConfig& optim) {
  if (!(optim.skip_above > 0)) {
    *this = {};
    return;
  }
  losses.push_back(loss);
  norms.push_back(norm);
  while (std::ssize(losses) > optim.skip_window) {
    losses.pop_front();
    norms.pop_front();
  }
}

StepLimits RecentSteps::limits(const OptimConfig& optim) const {
  if (!(optim.skip_above > 0) || std::ssize(losses) < optim.skip_window) return {};
  return {.loss = limit_of(losses, optim), .norm = limit_of(norms, optim)};
}

std::string outlier_text(double loss, double norm, const StepLimits& limits) {
  std::string text;
  const auto add = [&](const char* what, double value, double limit) {
    if (!(value > limit)) return;
    text += fmt::format("{}{} {} is above {}", text.empty() ? "" : ", ", what, real_text(value), real_text(limit));
  };
  add("loss", loss, limits.loss);
  add("gradient norm", norm, limits.norm);
  return text;
}

}  // namespace lyceum

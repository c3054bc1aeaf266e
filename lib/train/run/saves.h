#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "config/config.h"
#include "core/clock.h"

namespace lyceum {

/// A source of the current time, which tests replace.
using Now = std::function<Clock::time_point()>;

/// Determines when the next checkpoint is due by time, for checkpoint.minutes.
class SaveTimer {
 public:
  explicit SaveTimer(double minutes, Now now = Clock::now) : interval_(minutes), now_(std::move(now)) { restart(); }
  void restart() { begun_ = now_(); }
  /// True once `minutes` have passed since restart(); never if `minutes` is 0.
  bool is_due() const { return interval_.count() > 0 && now_() - begun_ >= interval_; }

 private:
  std::chrono::duration<double, std::ratio<60>> interval_;
  Now now_;
  Clock::time_point begun_;
};

/// Describes when a run saves checkpoints: "every 10 min: a run that is killed loses at most about 10 min".
std::string saves_text(const Config& config);

}  // namespace lyceum

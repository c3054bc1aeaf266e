#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/routing/routing_statistics.h"

namespace lyceum {

/// The number of steps for which each expert of a mixture has been idle: chosen by no token.
struct IdleExperts {
  MixtureId id;
  std::vector<std::int64_t> steps;  // [experts]
  bool operator==(const IdleExperts&) const = default;
};

/// Adds one step's counts, of all ranks.
void add_step(std::vector<IdleExperts>& idle, const std::vector<RoutingSums>& sums);

/// Reports dead experts: those that have been idle for `window` steps in a row. With a window of 0 there are none.
class DeadExperts {
 public:
  explicit DeadExperts(std::int64_t window) : window_(window) {}

  /// Of all mixtures.
  std::int64_t count(const std::vector<IdleExperts>& idle) const;
  /// What has changed since the last call, after `step`: at most a line on experts that died, then one on those that
  /// came back.
  std::vector<std::string> news(std::int64_t step, const std::vector<IdleExperts>& idle);

 private:
  bool dead(std::int64_t idle_steps) const { return window_ > 0 && idle_steps >= window_; }

  std::int64_t window_;
  std::vector<std::vector<bool>> told_;  // dead at the last call: [mixtures, experts]
};

}  // namespace lyceum

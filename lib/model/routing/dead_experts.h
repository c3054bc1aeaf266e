#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/routing/routing_statistics.h"

namespace lyceum {

/// For each expert of a mixture, the number of consecutive steps up to now in which no token chose it (idle).
struct IdleExperts {
  MixtureId id;
  std::vector<std::int64_t> steps;  // [experts]
  bool operator==(const IdleExperts&) const = default;
};

/// Updates `idle` with the routing of one step, summed over all ranks: one element of `sums` per mixture, always in the
/// same order. If `idle` is empty, counting begins.
void add_step(std::vector<IdleExperts>& idle, const std::vector<RoutingSums>& sums);

/// Reports dead experts: those that have been idle for `window` or more consecutive steps. If `window` is 0, no expert
/// counts as dead.
class DeadExperts {
 public:
  /// `window`: routing.dead_after.
  explicit DeadExperts(std::int64_t window) : window_(window) {}

  /// Returns the number of dead experts of all mixtures.
  std::int64_t count(const std::vector<IdleExperts>& idle) const;
  /// Returns messages about changes since the last call, as of `step`: at most one line on experts that died, then at
  /// most one on experts that are chosen again.
  std::vector<std::string> news(std::int64_t step, const std::vector<IdleExperts>& idle);

 private:
  bool is_dead(std::int64_t idle_steps) const { return window_ > 0 && idle_steps >= window_; }

  std::int64_t window_;
  std::vector<std::vector<bool>> reported_;  // [mixtures, experts]: true for an expert that was dead at the last call
};

}  // namespace lyceum

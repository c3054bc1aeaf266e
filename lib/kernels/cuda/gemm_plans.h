#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "core/error.h"

namespace lyceum {

/// What was made once for each key; nothing in it is ever changed, so that the same work gives the same bits.
template <class Key, class Plan>
class PlanCache {
 public:
  /// The plan of `key`, made by make() when it is asked for the first time.
  template <class Make>
  const Plan& get(const Key& key, const Make& make) {
    const auto found = plans_.find(key);
    return found != plans_.end() ? found->second : plans_.emplace(key, make()).first->second;
  }
  std::size_t size() const { return plans_.size(); }
  void clear() { plans_.clear(); }

 private:
  std::map<Key, Plan> plans_;
};

/// The candidate of least median time; the first of equal ones. `seconds(i)` times candidate i once. Another one must
/// be a fiftieth faster to win: noise should not choose.
template <class Seconds>
std::size_t choose_fastest(std::size_t candidates, const Seconds& seconds, std::size_t repeats = 5) {
  require(candidates > 0 && repeats > 0, "nothing to choose from");
  std::vector<double> medians;
  for (std::size_t i = 0; i < candidates; ++i) {
    seconds(i);  // warm
    std::vector<double> times;
    for (std::size_t r = 0; r < repeats; ++r) times.push_back(seconds(i));
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(repeats / 2), times.end());
    medians.push_back(times[repeats / 2]);
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < candidates; ++i) {
    if (medians[i] < 0.98 * medians[best]) best = i;
  }
  return best;
}

}  // namespace lyceum

#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "core/error.h"

namespace lyceum {

/// A cache with one plan per key. Plans never change once made, so repeated work gives the same bits.
template <class Key, class Plan>
class PlanCache {
 public:
  /// Returns the plan of `key`; calls make() on the first request.
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

/// Returns the candidate with the least median time; seconds(i) times candidate i once. A later candidate replaces an
/// earlier one only if it is 2 % faster, so that noise does not decide.
template <class Seconds>
std::size_t choose_fastest(std::size_t candidates, const Seconds& seconds, std::size_t repeats = 5) {
  require(candidates > 0 && repeats > 0, "there are no candidates to choose from");
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

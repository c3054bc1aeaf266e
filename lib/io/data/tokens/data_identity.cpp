#include "io/data/tokens/data_identity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "io/data/tokens/data_sources.h"

namespace lyceum {

std::vector<DataIdentity> changed_data(std::span<const DataIdentity> before, std::span<const DataIdentity> now) {
  std::vector<DataIdentity> changed;
  for (const DataIdentity& old : before) {
    for (const DataIdentity& one : now) {
      if (one.key == old.key && one.prefix == old.prefix && one.fingerprint != old.fingerprint) changed.push_back(one);
    }
  }
  return changed;
}

bool same_sources(const std::string& key, const std::string& before, const std::string& now,
                  std::span<const DataIdentity> known_before, std::span<const DataIdentity> known_now) {
  if (before == now) return true;
  std::vector<DataSource> old_sources;
  try {
    old_sources = data_sources(key, before);
  } catch (const Error&) {  // `before` is a prefix with spaces whose files no longer exist
    return false;
  }
  const std::vector<DataSource> sources = data_sources(key, now);
  const auto total = [](const std::vector<DataSource>& all) {
    return std::accumulate(all.begin(), all.end(), 0.0, [](double sum, const DataSource& s) { return sum + s.weight; });
  };
  const auto fingerprint_of = [&](std::span<const DataIdentity> all, const std::string& prefix) {
    const auto found =
        std::ranges::find_if(all, [&](const DataIdentity& one) { return one.key == key && one.prefix == prefix; });
    return found == all.end() ? std::string() : found->fingerprint;
  };
  const double old_sum = total(old_sources), sum = total(sources);
  return std::ranges::equal(old_sources, sources, [&](const DataSource& old, const DataSource& one) {
    const std::string fingerprint = fingerprint_of(known_before, old.prefix);
    const bool same_data =
        old.prefix == one.prefix || (!fingerprint.empty() && fingerprint == fingerprint_of(known_now, one.prefix));
    constexpr double rounding = 1e-12;
    const bool same_share = std::abs(old.weight * sum - one.weight * old_sum) <= rounding * sum * old_sum;
    return same_data && same_share && (old_sum > 0) == (sum > 0);
  });
}

}  // namespace lyceum

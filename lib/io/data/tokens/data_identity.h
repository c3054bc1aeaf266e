#pragma once

#include <span>
#include <string>
#include <vector>

namespace lyceum {

/// The identity of a token source, which checkpoints keep to recognise it when the run continues.
struct DataIdentity {
  std::string key, prefix;  // "data.train" and one of the prefixes that it names
  std::string fingerprint;  // TokenSource::fingerprint()
};

/// Returns those of `now` whose contents differ from those of the same key and prefix in `before`.
std::vector<DataIdentity> changed_data(std::span<const DataIdentity> before, std::span<const DataIdentity> now);

/// True if two values of `key`, such as data.train, name the same sources with the same shares: by prefix, or by
/// contents that are known. `known_before`, `known_now`: of all keys.
bool same_sources(const std::string& key, const std::string& before, const std::string& now,
                  std::span<const DataIdentity> known_before, std::span<const DataIdentity> known_now);

}  // namespace lyceum

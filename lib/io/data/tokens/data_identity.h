#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lyceum {

/// The identity of a token source. Checkpoints store it, so that a resumed run notices if its data were replaced.
struct DataIdentity {
  std::string key, prefix;  // `key`: "data.train" or another key; `prefix`: one of the prefixes in its value
  std::string fingerprint;  // TokenSource::fingerprint()
  /// The number of a source of data.train that determines its order of samples, SampleOrder::source(); −1 if unknown.
  /// It stays that of the run if the source is renamed.
  std::int64_t order = -1;
};

/// Returns the entries of `now` whose fingerprint differs from that of the entry of `before` with the same key and
/// prefix. Sources that only one of the two has are not returned.
std::vector<DataIdentity> changed_data(std::span<const DataIdentity> before, std::span<const DataIdentity> now);

/// True if two values of `key`, such as data.train, name the same sources in the same order with the same shares. Two
/// sources are the same if they have the same prefix or the same known fingerprint. `known_before`, `known_now`: the
/// identities of the sources of all keys. Throws as data_sources() does if `now` is invalid.
bool same_sources(const std::string& key, const std::string& before, const std::string& now,
                  std::span<const DataIdentity> known_before, std::span<const DataIdentity> known_now);

}  // namespace lyceum

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// A token source that data.train or data.valid names.
struct DataSource {
  std::string prefix;
  double weight = 0;  // as written in the value; 0 if the value has no weights
  bool operator==(const DataSource&) const = default;
};

/// Parses the value of a key: "PREFIX", "WEIGHT PREFIX WEIGHT PREFIX …", or "PREFIX PREFIX …" without weights. A value
/// with spaces is a single prefix if token files with that prefix exist. Returns nothing for an empty value. Throws a
/// usage Error that names `key` if a weight is not positive, only some sources have a weight, or a prefix occurs twice.
std::vector<DataSource> data_sources(std::string_view key, const std::string& text);

}  // namespace lyceum

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// A token file of data.train or data.valid.
struct DataSource {
  std::string prefix;
  double weight = 0;  // as it is written; 0: none is
  bool operator==(const DataSource&) const = default;
};

/// "PREFIX"; "WEIGHT PREFIX WEIGHT PREFIX …"; or "PREFIX PREFIX …", without weights. A text with spaces is one prefix
/// where there is such a file. Throws a usage Error that names `key` where a weight is not positive, or only some
/// sources have one, or one prefix is there twice.
std::vector<DataSource> data_sources(std::string_view key, const std::string& text);

}  // namespace lyceum

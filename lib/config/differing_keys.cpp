#include "config/differing_keys.h"

#include <algorithm>
#include <utility>

#include "config/keys.h"

namespace lyceum {

std::vector<DifferingKey> differing_keys(std::span<const Config> configs) {
  std::vector<DifferingKey> rows;
  for (const Config& config : configs) {
    Config bound = config;  // the keys refer to it
    const ConfigKeys keys = keys_of(bound);
    rows.resize(keys.size());
    for (std::size_t k = 0; k < keys.size(); ++k) {
      rows[k].key = keys[k].name;
      rows[k].values.push_back(keys[k].setting.text());
    }
  }
  std::erase_if(rows, [](const DifferingKey& row) {
    return row.key == "run.dir" ||
           std::ranges::all_of(row.values, [&](const std::string& value) { return value == row.values.front(); });
  });
  return rows;
}

}  // namespace lyceum

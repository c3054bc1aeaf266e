#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// A key whose value is not the same in all of several configurations.
struct DifferingKey {
  std::string key;                  // "section.key"
  std::vector<std::string> values;  // as text, one per configuration
};

/// Returns the keys whose values differ, in the order of the configuration. Leaves out run.dir, which differs between
/// any two runs.
std::vector<DifferingKey> differing_keys(std::span<const Config> configs);

}  // namespace lyceum

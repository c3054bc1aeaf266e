#pragma once

#include <boost/program_options.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/setting.h"

namespace lyceum {

/// A key, bound to its member of a Config.
struct ConfigKey {
  std::string name;
  Setting setting;
  std::string help;
};
/// Every key of `config`, section by section; `config` must outlive them.
std::vector<ConfigKey> keys_of(Config& config);

/// The key of that name, or null.
const ConfigKey* find_key(std::span<const ConfigKey> keys, std::string_view name);

/// The same as options of a command line.
boost::program_options::options_description options_of(std::span<const ConfigKey> keys);

}  // namespace lyceum

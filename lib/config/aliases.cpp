#include "config/aliases.h"

#include <fmt/format.h>

#include <algorithm>

namespace lyceum {

void apply_aliases(std::span<const ConfigKey> keys, const GivenAliases& aliases, std::span<const std::string> given,
                   LoadedConfig& loaded) {
  for (const ConfigKey& key : keys) {
    const auto& [name, on, off] = key.alias;
    const auto found = aliases.find(name);
    if (found == aliases.end()) continue;
    const auto& [is_on, origin] = found->second;
    const bool both = std::ranges::find(given, key.name) != given.end();
    const std::string own = key.setting.text();
    if (!both || (is_on && own == off)) {
      key.setting.assign(is_on ? on : off);
      loaded.origin[key.name] = origin;
      loaded.origin[key.name].alias = name;
    } else if (is_on && own != on) {
      loaded.mistakes.push_back(
          fmt::format("{0} = true with {1} = {2}: set {0} = false, or {1} = {3}", name, key.name, own, on));
    }
  }
}

std::string key_of_other_name(std::string_view name) {
  std::string word(name.substr(name.rfind('.') + 1));  // npos + 1 is 0
  std::ranges::replace(word, '-', '_');
  Config initial;
  const ConfigKeys keys = keys_of(initial);
  const auto found = std::ranges::find_if(
      keys, [&](const ConfigKey& key) { return std::ranges::find(key.other_names, word) != key.other_names.end(); });
  return found == keys.end() ? std::string() : found->name;
}

}  // namespace lyceum

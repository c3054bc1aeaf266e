#include "config/aliases.h"

#include <algorithm>

#include "config/keys.h"

namespace lyceum {

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

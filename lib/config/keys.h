#pragma once

#include <boost/program_options.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/feature.h"
#include "config/setting.h"

namespace lyceum {

/// A boolean key that sets another key: true sets it to `on`, false to `off`. Configurations are written without it. An
/// empty name means no alias.
struct KeyAlias {
  std::string name = {}, on = {}, off = {};
};

/// A key of the configuration, bound to its member of a Config.
struct ConfigKey {
  std::string name;
  Setting setting;
  std::string help;
  KeyRole role;
  std::vector<std::string_view> other_names;  // the key's names in other frameworks, see key_of_other_name()
  KeyAlias alias;
};

/// The optional parts of a declaration.
struct KeyNotes {
  std::optional<KeyRole> role = {};  // unset: the role of the section
  std::vector<std::string_view> other_names = {};
  KeyAlias alias = {};
};

/// Adds the keys of a section to a list. They have the role of the section unless their notes name another one.
class KeySection {
 public:
  /// `keys` must outlive this. `role`: that of the section.
  KeySection(ConfigKeys& keys, KeyRole role) : keys_(keys), role_(role) {}
  /// Adds a key. `name`: "section.key"; `help`: its line in --list-keys.
  void operator()(const char* name, Member member, Domain values, const char* help, KeyNotes notes = {}) const;
  void operator()(const char* name, const EnumMember& member, const char* help, KeyNotes notes = {}) const;

 private:
  ConfigKeys& keys_;
  KeyRole role_;
};

/// Allowed values of the weight of a loss. The upper bound is far beyond sensible values, but small enough that f32
/// does not overflow; the same holds for the bounds of other keys with real numbers.
inline const Domain loss_weight{.low = 0, .high = 1e4};

/// Returns every key of `config`, section by section. `config` must outlive the keys.
ConfigKeys keys_of(Config& config);

/// Returns the key of that name, or null. Aliases are not found.
const ConfigKey* find_key(std::span<const ConfigKey> keys, std::string_view name);

/// Returns the keys and their aliases as options of a command line.
boost::program_options::options_description options_of(std::span<const ConfigKey> keys);

}  // namespace lyceum

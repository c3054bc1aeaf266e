#include "config/keys.h"

#include <algorithm>
#include <utility>

namespace lyceum {

namespace po = boost::program_options;

void KeySection::operator()(const char* name, Member member, Domain values, const char* help, KeyNotes notes) const {
  keys_.push_back({name, Setting(std::move(member), std::move(values)), help, notes.role.value_or(role_),
                   std::move(notes.other_names), std::move(notes.alias)});
}

void KeySection::operator()(const char* name, const EnumMember& member, const char* help, KeyNotes notes) const {
  (*this)(name, member, {.names = member.names()}, help, std::move(notes));
}

ConfigKeys keys_of(Config& config) {
  ConfigKeys keys;
  keys.reserve(256);
  const auto declare = [&](auto&... sections) { (declare_keys(keys, sections), ...); };
  declare(config.run, config.data, config.batch, config.model, config.moe, config.attention_experts,
          config.sub_dimensions, config.mtp, config.balance, config.optim, config.parallel, config.eval,
          config.checkpoint, config.routing);
  return keys;
}

const ConfigKey* find_key(std::span<const ConfigKey> keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &ConfigKey::name);
  return found == keys.end() ? nullptr : &*found;
}

po::options_description options_of(std::span<const ConfigKey> keys) {
  po::options_description options;
  for (const ConfigKey& key : keys) {
    options.add_options()(key.name.c_str(), new Setting(key.setting), key.help.c_str());
    if (!key.alias.name.empty()) options.add_options()(key.alias.name.c_str(), new Setting(key.setting), "");
  }
  return options;
}

}  // namespace lyceum

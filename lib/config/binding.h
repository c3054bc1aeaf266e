#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// Where a value was given: a line of a file, or the command line (no file).
struct Origin {
  std::string file = {};
  std::int64_t line = 0;
};

/// A configuration as the user gave it, not yet resolved for a number of ranks (config_check.h).
struct LoadedConfig {
  Config config = {};
  std::map<std::string, Origin> origin = {};  // of every key that was given; the others have their default
  std::vector<std::string> rest = {};         // arguments that are not about the configuration, in order
  std::vector<std::string> mistakes = {};     // what could not be read; its keys keep what they had
  bool help = false, print_config = false, list_keys = false;
};

/// Reads `--config FILE` and `--section.key=value` or `--section.key value` among the arguments of a command (without
/// the names of program and command): command line over file over default, the last of equal arguments counts.
/// What cannot be read is in `mistakes`. With --help or --list-keys only those are looked at.
/// `base`: what holds, and where it came from, where neither says anything.
LoadedConfig read_config(std::span<const std::string> arguments, LoadedConfig base = {});

/// The same, but throws one usage Error that lists all mistakes.
LoadedConfig load_config(std::span<const std::string> arguments);

/// The whole configuration as an INI file that load_config reads back to the same values.
std::string to_ini(const Config& config);
/// Writes a configuration as it was before resolve(): a key that it derives keeps its 0 or auto, and a comment says the
/// value in `resolved`. So the file means the same on other ranks.
std::string to_ini(const Config& given, const Config& resolved);

/// A key with two values, as text.
struct Difference {
  std::string key, before, after;
};
/// Whether a key is of the sections that say what the model is: model, moe, attention_experts, sub_dimensions.
bool describes_model(std::string_view key);
/// Every key whose values differ, in the order of the configuration.
std::vector<Difference> differences(const Config& before, const Config& after);

/// A configuration kept as text, such as a checkpoint's; messages call it `name`. Throws as load_config does, except
/// that numbers of keys that do not describe the model may be out of range: another build may have accepted them.
LoadedConfig parse_config(const std::string& text, const std::string& name);

/// A configuration that another build may have written: what this build does not know is left out, and numbers may be
/// out of range.
Config recall_config(const std::string& text);

/// A line a key: `section.key = value  # where the value came from`; also an INI file. Call it with a resolved
/// configuration: a value that nobody gave and that is not the default is then reported as derived.
std::string print_config(const LoadedConfig& loaded);

/// A line a key, by section: what it may be, its default, what it means.
std::string list_keys();

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// The source of a value: a line of a file, or the command line (empty `file`).
struct Origin {
  std::string file = {};
  std::int64_t line = 0;
  std::string alias = {};  // the alias that set the value, see KeyAlias; empty if the key itself did
};

/// A configuration as the user specified it, before resolve() (config/check.h).
struct LoadedConfig {
  Config config = {};
  std::map<std::string, Origin> origin = {};  // the source of every key that was set; other keys have their default
  std::vector<std::string> rest = {};         // arguments that do not belong to the configuration, in order
  std::vector<std::string> mistakes = {};     // messages about values that could not be read; their keys are unchanged
  bool help = false, print_config = false, list_keys = false;
};

/// Reads `--config FILE` and `--section.key=value` or `--section.key value` from the arguments of a command (without
/// the names of program and command). The command line overrides the file, which overrides `base`; the last of repeated
/// arguments counts. Errors are collected in `mistakes`. With --help or --list-keys nothing else is read.
LoadedConfig read_config(std::span<const std::string> arguments, LoadedConfig base = {});

/// Calls read_config() and throws one usage Error that lists all mistakes.
LoadedConfig load_config(std::span<const std::string> arguments);

/// Returns the whole configuration as an INI file. load_config() reads the same values from it.
std::string to_ini(const Config& config);
/// Returns `given`, a configuration before resolve(), as an INI file that has the same meaning on any number of ranks:
/// a key that resolve() derives keeps its 0 or auto, and a comment states its value in `resolved`.
std::string to_ini(const Config& given, const Config& resolved);

/// A key and its values in two configurations, as text.
struct Difference {
  std::string key, before, after;
};
/// True if a key is in a section that describes the model: model, latent_attention, attention_experts, sub_dimensions,
/// moe, mtp.
bool describes_model(std::string_view key);
/// Returns every key whose values differ, in the order of the configuration, then the keys of stages. A key that a
/// stage does not set has an empty value.
std::vector<Difference> differences(const Config& before, const Config& after);

/// Reads a configuration from text, for example that of a checkpoint; messages use `name` for its source. Throws the
/// errors of load_config(), except that numbers of keys that do not describe the model may be out of range: another
/// build may have accepted them. Keys that no build uses any more are ignored.
LoadedConfig parse_config(const std::string& text, const std::string& name);

/// Reads a configuration that another build may have written. Does not throw: unknown keys and values that cannot be
/// read are ignored, and numbers may be out of range.
Config parse_config_leniently(const std::string& text);

/// Returns one line per key: `section.key = value  # source of the value`. The text is also an INI file. `loaded`
/// should be resolved; a value that was not set and differs from the default is reported as derived.
std::string print_config(const LoadedConfig& loaded);

/// Returns the text of --list-keys: one line per key, by section, with its allowed values, default and help.
std::string list_keys();

}  // namespace lyceum

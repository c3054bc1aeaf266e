#include "config/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

#include "config/aliases.h"
#include "config/check.h"
#include "config/ini_file.h"
#include "config/keys.h"
#include "core/error.h"
#include "io/data/tokens/source_list.h"
#include "io/text/nearest_word.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

namespace po = boost::program_options;

struct Assignment {
  std::string key, value;
  Origin origin;
  bool has_value = true;
  bool of_any_build = false;  // written by a build that may have accepted other numbers
};

struct CommandLine {
  std::vector<std::string> files;
  std::vector<Assignment> assignments;
};

std::string where(const Origin& origin) {
  return origin.file.empty() ? "on the command line" : fmt::format("in {} line {}", origin.file, origin.line);
}

/// Returns the known key that was most likely meant; empty if none is similar. A correct key in a wrong section is
/// similar.
std::string nearest_key(std::span<const ConfigKey> keys, const std::string& key) {
  constexpr std::size_t longest = 100;  // three times the longest key
  if (key.size() > longest) return {};
  const auto last_word = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  struct Match {
    std::size_t rank, distance;  // rank: the distance, but at most 1 for a key with the right last word
    std::string name;
    auto operator<=>(const Match&) const = default;
  };
  Match best{.rank = std::max<std::size_t>(3, key.size() / 3), .distance = 0, .name = ""};
  const auto consider = [&](const std::string& name) {
    const bool same_word = last_word(key) == last_word(name);
    constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
    const std::size_t distance = edit_distance(key, name, same_word ? any : best.rank);
    const std::size_t rank = same_word ? std::min<std::size_t>(distance, 1) : distance;
    best = std::min(best, Match{.rank = rank, .distance = distance, .name = name});
  };
  for (const ConfigKey& known : keys) {
    consider(known.name);
    if (!known.alias.name.empty()) consider(known.alias.name);
  }
  return best.name;
}

/// Splits `--key=` into `--key` and an empty argument, the only form in which Boost's parser accepts an empty value.
std::vector<std::string> separate_empty_values(std::span<const std::string> arguments) {
  std::vector<std::string> separate;
  for (const std::string& argument : arguments) {
    const bool empty_value = argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    separate.push_back(empty_value ? argument.substr(0, argument.size() - 1) : argument);
    if (empty_value) separate.emplace_back();
  }
  return separate;
}

CommandLine sort_arguments(const std::vector<po::option>& options, LoadedConfig& loaded) {
  CommandLine line;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const po::option& option = options[i];
    const std::string& key = option.string_key;
    if (key == "help") {
      loaded.help = true;
    } else if (key == "print-config") {
      loaded.print_config = true;
    } else if (key == "list-keys") {
      loaded.list_keys = true;
    } else if (key == "config") {
      line.files.push_back(option.value.empty() ? "" : option.value.front());
    } else if (key.find('.') == std::string::npos) {
      loaded.rest.insert(loaded.rest.end(), option.original_tokens.begin(), option.original_tokens.end());
    } else {
      line.assignments.push_back({key, option.value.empty() ? "" : option.value.front(), {}, !option.value.empty()});
      // The value of a key that Boost does not know, such as one of a stage, follows it as a separate argument.
      if (option.unregistered && option.value.empty() && i + 1 < options.size() && options[i + 1].string_key.empty()) {
        const std::vector<std::string>& value = options[++i].original_tokens;
        line.assignments.back().value = value.empty() ? "" : value.front();
        line.assignments.back().has_value = true;
      }
    }
  }
  return line;
}

CommandLine read_command_line(std::span<const ConfigKey> keys, std::span<const std::string> arguments,
                              LoadedConfig& loaded) {
  std::string file;
  po::options_description known = options_of(keys);
  known.add_options()("help", "")("print-config", "")("list-keys", "")("config", new Setting(&file, Domain{}), "");
  // Boost would drop the "--" that ends the options.
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  const auto options = arguments.first(static_cast<std::size_t>(end - arguments.begin()));
  using namespace po::command_line_style;
  try {
    CommandLine line = sort_arguments(po::command_line_parser(separate_empty_values(options))
                                          .options(known)
                                          .style(allow_long | long_allow_adjacent | long_allow_next)
                                          .allow_unregistered()
                                          .run()
                                          .options,
                                      loaded);
    loaded.rest.insert(loaded.rest.end(), end, arguments.end());
    return line;
  } catch (const po::error& error) {
    loaded.mistakes.push_back(excerpt(error.what(), 200));
    return {};
  }
}

std::string unknown_key(std::span<const ConfigKey> keys, const Assignment& given, bool suggest) {
  const std::string meant = suggest ? key_of_other_name(given.key) : "";
  const std::string nearest = suggest && meant.empty() ? nearest_key(keys, given.key) : meant;
  return fmt::format("unknown key '{}' {}: {}", excerpt(given.key), where(given.origin),
                     nearest.empty() ? "see --list-keys" : "did you mean " + nearest + "?");
}

/// Assigns the value of a key of a training stage.
void assign_in_stage(const Assignment& given, LoadedConfig& loaded) {
  try {
    if (!given.has_value) throw po::error("a value is missing");
    lyceum::assign_in_stage(given.key, given.value, given.of_any_build, loaded.config.training_stages);
    loaded.origin[given.key] = given.origin;
  } catch (const po::error& error) {
    loaded.mistakes.push_back(
        fmt::format("{} = {} {}: {}", excerpt(given.key), excerpt(given.value), where(given.origin), error.what()));
  }
}

/// Assigns all values; the last one of a key counts. Aliases are applied afterwards. A key or an alias of the command
/// line replaces the other one of a file.
void assign(std::span<const ConfigKey> keys, std::span<const Assignment> all, LoadedConfig& loaded) {
  std::vector<std::string> assigned;
  GivenAliases aliases;
  for (const Assignment& given : all) {
    if (is_stage_key(given.key)) {
      assign_in_stage(given, loaded);
      continue;
    }
    const ConfigKey* const key = find_key(keys, given.key);
    const auto of_alias = std::ranges::find_if(keys, [&](const auto& k) { return k.alias.name == given.key; });
    const bool alias = !key && of_alias != keys.end();
    if (!key && !alias) {
      loaded.mistakes.push_back(unknown_key(keys, given, loaded.mistakes.size() < most_listed));
      continue;
    }
    try {
      if (!given.has_value) throw po::error("a value is missing");
      bool on = false;
      const Setting setting = alias ? Setting(&on, {}) : key->setting;
      if (given.of_any_build) {
        setting.assign_leniently(given.value);
      } else {
        setting.assign(given.value);
      }
      if (alias) {
        aliases.insert_or_assign(given.key, GivenAlias{on, given.origin});
        if (loaded.origin[of_alias->name].file != given.origin.file) std::erase(assigned, of_alias->name);
      } else {
        const auto earlier = aliases.find(key->alias.name);
        if (earlier != aliases.end() && earlier->second.origin.file != given.origin.file) aliases.erase(earlier);
        loaded.origin[given.key] = given.origin;
        assigned.push_back(given.key);
      }
    } catch (const po::error& error) {
      loaded.mistakes.push_back(
          fmt::format("{} = {} {}: {}", given.key, excerpt(given.value), where(given.origin), error.what()));
    }
  }
  apply_aliases(keys, aliases, assigned, loaded);
}

/// Returns the entries of an INI file as assignments; messages use `name` for the file.
std::vector<Assignment> assignments_of(const std::vector<IniEntry>& entries, const std::string& name) {
  std::vector<Assignment> all;
  for (const IniEntry& entry : entries) all.push_back({entry.key, entry.value, {name, entry.line}});
  return all;
}

/// Replaces the value "@FILE" of a key by the sources that the file lists.
void insert_listed_sources(const std::string& key, std::string& value, LoadedConfig& loaded) {
  if (!value.starts_with('@')) return;
  try {
    value = sources_of_file(value.substr(1));
  } catch (const Error& error) {
    loaded.mistakes.push_back(fmt::format("{} = {} {}: {}", key, value, where(loaded.origin[key]), error.what()));
  }
}

}  // namespace

LoadedConfig read_config(std::span<const std::string> arguments, LoadedConfig base) {
  LoadedConfig loaded = std::move(base);
  const std::vector<ConfigKey> keys = keys_of(loaded.config);
  CommandLine line = read_command_line(keys, arguments, loaded);
  if (loaded.help || loaded.list_keys) return loaded;

  if (line.files.size() > 1) loaded.mistakes.emplace_back("--config is given more than once: give only one file");
  std::vector<Assignment> all;
  for (const std::string& file : line.files) {
    std::ranges::move(assignments_of(read_ini(file, loaded.mistakes), file), std::back_inserter(all));
  }
  std::ranges::move(line.assignments, std::back_inserter(all));
  assign(keys, all, loaded);
  insert_listed_sources("data.train", loaded.config.data.train, loaded);
  insert_listed_sources("data.valid", loaded.config.data.valid, loaded);
  for (std::size_t s = 0; s < loaded.config.training_stages.size(); ++s) {
    const auto value = loaded.config.training_stages[s].values.find("data.train");
    if (value == loaded.config.training_stages[s].values.end()) continue;
    insert_listed_sources(fmt::format("stage.{}.data.train", s + 2), value->second, loaded);
  }
  return loaded;
}

LoadedConfig load_config(std::span<const std::string> arguments) {
  LoadedConfig loaded = read_config(arguments);
  require_none(loaded.mistakes);
  return loaded;
}

namespace {

/// True for keys of earlier builds that no longer exist. Checkpoints may contain them.
bool retired(std::string_view key) { return key == "parallel.bucket_mb" || key == "moe.attention_experts"; }

}  // namespace

LoadedConfig parse_config(const std::string& text, const std::string& name) {
  LoadedConfig loaded;
  const std::vector<ConfigKey> keys = keys_of(loaded.config);
  std::istringstream stream(text);
  std::vector<Assignment> all = assignments_of(read_ini(stream, name, loaded.mistakes), name);
  std::erase_if(all, [](const Assignment& given) { return retired(given.key); });
  for (Assignment& given : all) given.of_any_build = !describes_model(given.key);
  assign(keys, all, loaded);
  require_none(loaded.mistakes);
  return loaded;
}

Config parse_config_leniently(const std::string& text) {
  LoadedConfig loaded;
  const std::vector<ConfigKey> keys = keys_of(loaded.config);
  std::istringstream stream(text);
  std::vector<Assignment> all = assignments_of(read_ini(stream, "configuration", loaded.mistakes), "configuration");
  for (Assignment& given : all) given.of_any_build = true;
  assign(keys, all, loaded);
  return std::move(loaded.config);
}

}  // namespace lyceum

#include "config/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <tuple>
#include <utility>

#include "config/aliases.h"
#include "config/check.h"
#include "config/ini_file.h"
#include "config/keys.h"
#include "core/error.h"
#include "io/text/nearest_word.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

namespace po = boost::program_options;

struct Assignment {
  std::string key, value;
  Origin origin;
  bool has_value = true;
};

struct CommandLine {
  std::vector<std::string> files;
  std::vector<Assignment> assignments;
};

std::string where(const Origin& origin) {
  return origin.file.empty() ? "on the command line" : fmt::format("in {} line {}", origin.file, origin.line);
}

/// The known key that was most likely meant, empty when none is near. A right key in a wrong section is near.
std::string nearest_key(std::span<const ConfigKey> keys, const std::string& key) {
  constexpr std::size_t longest = 100;  // thrice the longest key
  if (key.size() > longest) return {};
  const auto last_word = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::tuple<std::size_t, std::size_t, std::string> best{std::max<std::size_t>(3, key.size() / 3), 0, ""};
  for (const ConfigKey& known : keys) {
    const std::string& name = known.name;
    const bool same_word = last_word(key) == last_word(name);
    constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
    const std::size_t distance = edit_distance(key, name, same_word ? any : std::get<0>(best));
    best = std::min(best, {same_word ? std::min<std::size_t>(distance, 1) : distance, distance, name});
  }
  return std::get<2>(best);
}

/// `--key=` as two arguments: Boost's parser takes an empty value only so.
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
      // An unknown key's value still follows it, as a separate argument.
      if (option.unregistered && option.value.empty() && i + 1 < options.size() && options[i + 1].string_key.empty())
        ++i;
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

/// The build whose text is read: another one may have accepted other numbers.
enum class Writer { this_build, any_build };

void assign(std::span<const ConfigKey> keys, const Assignment& given, LoadedConfig& loaded,
            Writer writer = Writer::this_build) {
  const ConfigKey* const key = find_key(keys, given.key);
  if (!key) {
    const bool told = loaded.mistakes.size() < most_told;
    const std::string meant(told ? key_of_other_name(given.key) : "");
    const std::string nearest = told && meant.empty() ? nearest_key(keys, given.key) : meant;
    loaded.mistakes.push_back(fmt::format("unknown key '{}' {}: {}", excerpt(given.key), where(given.origin),
                                          nearest.empty() ? "see --list-keys" : "did you mean " + nearest + "?"));
    return;
  }
  try {
    if (!given.has_value) throw po::error("a value is missing");
    writer == Writer::any_build ? key->setting.recall(given.value) : key->setting.assign(given.value);
    loaded.origin[given.key] = given.origin;
  } catch (const po::error& error) {
    loaded.mistakes.push_back(
        fmt::format("{} = {} {}: {}", given.key, excerpt(given.value), where(given.origin), error.what()));
  }
}

}  // namespace

LoadedConfig read_config(std::span<const std::string> arguments, LoadedConfig base) {
  LoadedConfig loaded = std::move(base);
  const std::vector<ConfigKey> keys = keys_of(loaded.config);
  const CommandLine line = read_command_line(keys, arguments, loaded);
  if (loaded.help || loaded.list_keys) return loaded;

  if (line.files.size() > 1) loaded.mistakes.emplace_back("--config is given more than once: give only one file");
  for (const std::string& file : line.files) {
    for (const IniEntry& entry : read_ini(file, loaded.mistakes)) {
      assign(keys, {entry.key, entry.value, {file, entry.line}}, loaded);
    }
  }
  for (const Assignment& given : line.assignments) assign(keys, given, loaded);
  return loaded;
}

LoadedConfig load_config(std::span<const std::string> arguments) {
  LoadedConfig loaded = read_config(arguments);
  require_none(loaded.mistakes);
  return loaded;
}

namespace {

/// Keys of earlier builds that mean nothing any more; checkpoints may still have them.
bool retired(std::string_view key) { return key == "parallel.bucket_mb" || key == "moe.attention_experts"; }

}  // namespace

LoadedConfig parse_config(const std::string& text, const std::string& name) {
  LoadedConfig loaded;
  const std::vector<ConfigKey> keys = keys_of(loaded.config);
  std::istringstream stream(text);
  for (const IniEntry& entry : read_ini(stream, name, loaded.mistakes)) {
    if (retired(entry.key)) continue;
    const Writer writer = describes_model(entry.key) ? Writer::this_build : Writer::any_build;
    assign(keys, {entry.key, entry.value, {name, entry.line}}, loaded, writer);
  }
  require_none(loaded.mistakes);
  return loaded;
}

Config recall_config(const std::string& text) {
  LoadedConfig loaded;
  const std::vector<ConfigKey> keys = keys_of(loaded.config);
  std::istringstream stream(text);
  for (const IniEntry& entry : read_ini(stream, "configuration", loaded.mistakes)) {
    assign(keys, {.key = entry.key, .value = entry.value, .origin = {}}, loaded, Writer::any_build);
  }
  return std::move(loaded.config);
}

}  // namespace lyceum

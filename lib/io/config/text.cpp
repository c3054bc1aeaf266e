#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "io/config/binding.h"
#include "io/config/keys.h"

namespace lyceum {
namespace {

namespace po = boost::program_options;

/// Calls `line(section, key, option)` for every key; `key` without its section.
template <class F>
void for_each_key(const po::options_description& keys, F&& line) {
  for (const auto& option : keys.options()) {
    const std::string& name = option->long_name();
    const std::size_t dot = name.find('.');
    line(name.substr(0, dot), name.substr(dot + 1), *option);
  }
}

/// Text of a bound configuration, a paragraph a section under its header.
template <class F>
std::string by_section(const po::options_description& keys, F&& line) {
  std::string text, current;
  for_each_key(keys, [&](const std::string& section, const std::string& key, const po::option_description& option) {
    if (section != current) text += fmt::format("{}[{}]\n", current.empty() ? "" : "\n", section);
    current = section;
    std::string entry = line(key, option);
    entry.erase(entry.find_last_not_of(' ') + 1);
    text += entry + '\n';
  });
  return text;
}

}  // namespace

std::string to_ini(const Config& config) {
  Config copy = config;
  po::options_description keys;
  bind(keys, copy);
  return by_section(keys, [](const std::string& key, const po::option_description& option) {
    return fmt::format("{} = {}", key, setting_of(option).text());
  });
}

bool describes_model(std::string_view key) {
  constexpr std::array<std::string_view, 4> sections{"model.", "moe.", "attention_experts.", "sub_dimensions."};
  return std::ranges::any_of(sections, [&](std::string_view section) { return key.starts_with(section); });
}

std::vector<Difference> differences(const Config& before, const Config& after) {
  Config from = before, to = after;
  po::options_description old_keys, keys;
  bind(old_keys, from);
  bind(keys, to);
  std::vector<Difference> found;
  for (std::size_t i = 0; i < keys.options().size(); ++i) {
    Difference difference{keys.options()[i]->long_name(), setting_of(*old_keys.options()[i]).text(),
                          setting_of(*keys.options()[i]).text()};
    if (difference.before != difference.after) found.push_back(std::move(difference));
  }
  return found;
}

std::string print_config(const LoadedConfig& loaded) {
  Config copy = loaded.config, initial;
  po::options_description keys, defaults;
  bind(keys, copy);
  bind(defaults, initial);
  const auto origin_of = [&](const std::string& key, const std::string& value) -> std::string {
    const auto given = loaded.origin.find(key);
    if (given == loaded.origin.end()) {
      return value == setting_of(defaults.find(key, false)).text() ? "default" : "derived";
    }
    const Origin& origin = given->second;
    return origin.file.empty() ? "command line" : fmt::format("{}:{}", origin.file, origin.line);
  };
  constexpr std::size_t widest = 40;  // a list of widths may be longer, alone
  std::size_t key_width = 0, value_width = 0;
  for (const auto& key : keys.options()) {
    key_width = std::max(key_width, key->long_name().size());
    value_width = std::max(value_width, std::min(widest, setting_of(*key).text().size()));
  }
  std::string text;
  for (const auto& key : keys.options()) {
    const std::string& name = key->long_name();
    const std::string value = setting_of(*key).text();
    text += fmt::format("{:{}} = {:{}}  # {}\n", name, key_width, value, value_width, origin_of(name, value));
  }
  return text;
}

std::string list_keys() {
  Config initial;
  po::options_description keys;
  bind(keys, initial);
  std::size_t key_width = 0, kind_width = 0, value_width = 0;
  for_each_key(keys, [&](const std::string&, const std::string& key, const po::option_description& option) {
    key_width = std::max(key_width, key.size());
    kind_width = std::max(kind_width, setting_of(option).name().size());
    value_width = std::max(value_width, setting_of(option).text().size());
  });
  return by_section(keys, [&](const std::string& key, const po::option_description& option) {
    const Setting& setting = setting_of(option);
    return fmt::format("{:{}}  {:{}}  {:{}}  {}", key, key_width, setting.name(), kind_width, setting.text(),
                       value_width, option.description());
  });
}

}  // namespace lyceum

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "config/binding.h"
#include "config/keys.h"

namespace lyceum {
namespace {

/// Calls `line(section, name, key)` for every key. `name` is without its section.
template <class F>
void for_each_key(std::span<const ConfigKey> keys, F&& line) {
  for (const ConfigKey& key : keys) {
    const std::size_t dot = key.name.find('.');
    line(key.name.substr(0, dot), key.name.substr(dot + 1), key);
  }
}

/// Returns the text of all keys, one paragraph per section under its header.
template <class F>
std::string by_section(std::span<const ConfigKey> keys, F&& line) {
  std::string text, current;
  for_each_key(keys, [&](const std::string& section, const std::string& name, const ConfigKey& key) {
    if (section != current) text += fmt::format("{}[{}]\n", current.empty() ? "" : "\n", section);
    current = section;
    std::string entry = line(name, key);
    entry.erase(entry.find_last_not_of(' ') + 1);
    text += entry + '\n';
  });
  return text;
}

/// Returns the sections of the stages after the first, each after an empty line.
std::string stage_sections(const TrainingStages& stages) {
  std::string text, current;
  for (const auto& [key, value] : entries_of(stages)) {
    const std::size_t dot = key.find('.', key.find('.') + 1);
    const std::string section = key.substr(0, dot);
    if (section != current) text += fmt::format("\n[{}]\n", section);
    current = section;
    text += fmt::format("{} = {}\n", key.substr(dot + 1), value);
  }
  return text;
}

}  // namespace

std::string to_ini(const Config& config) {
  Config copy = config;
  const std::string first_stage = by_section(keys_of(copy), [](const std::string& name, const ConfigKey& key) {
    return fmt::format("{} = {}", name, key.setting.text());
  });
  return first_stage + stage_sections(config.training_stages);
}

std::string to_ini(const Config& given, const Config& resolved) {
  Config copy = given, derived = resolved;
  const std::vector<ConfigKey> values = keys_of(derived);
  const std::string first_stage = by_section(keys_of(copy), [&](const std::string& name, const ConfigKey& key) {
    const std::string text = key.setting.text(), here = find_key(values, key.name)->setting.text();
    return fmt::format("{} = {}{}", name, text, here == text ? "" : fmt::format("  # derived here: {}", here));
  });
  return first_stage + stage_sections(given.training_stages);
}

bool describes_model(std::string_view key) {
  constexpr std::array<std::string_view, 6> sections{
      "model.", "latent_attention.", "attention_experts.", "sub_dimensions.", "moe.", "mtp."};
  return std::ranges::any_of(sections, [&](std::string_view section) { return key.starts_with(section); });
}

std::vector<Difference> differences(const Config& before, const Config& after) {
  Config from = before, to = after;
  const std::vector<ConfigKey> old_keys = keys_of(from), keys = keys_of(to);
  std::vector<Difference> found;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Difference difference{keys[i].name, old_keys[i].setting.text(), keys[i].setting.text()};
    if (difference.before != difference.after) found.push_back(std::move(difference));
  }
  std::map<std::string, Difference> of_stages;
  for (const auto& [key, value] : entries_of(before.training_stages)) of_stages[key].before = value;
  for (const auto& [key, value] : entries_of(after.training_stages)) of_stages[key].after = value;
  for (auto& [key, difference] : of_stages) {
    difference.key = key;
    if (difference.before != difference.after) found.push_back(std::move(difference));
  }
  return found;
}

std::string print_config(const LoadedConfig& loaded) {
  Config copy = loaded.config, initial;
  const std::vector<ConfigKey> keys = keys_of(copy), defaults = keys_of(initial);
  const auto origin_of = [&](const std::string& key, const std::string& value,
                             const std::string& by_default) -> std::string {
    const auto given = loaded.origin.find(key);
    if (given == loaded.origin.end()) return value == by_default ? "default" : "derived";
    const Origin& origin = given->second;
    const std::string source = origin.file.empty() ? "command line" : fmt::format("{}:{}", origin.file, origin.line);
    return origin.alias.empty() ? source : fmt::format("{}, by {}", source, origin.alias);
  };
  constexpr std::size_t widest = 40;  // limit of the column's width; longer values, such as lists of widths, exceed it
  std::size_t key_width = 0, value_width = 0;
  for (const ConfigKey& key : keys) {
    key_width = std::max(key_width, key.name.size());
    value_width = std::max(value_width, std::min(widest, key.setting.text().size()));
  }
  std::string text;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::string value = keys[i].setting.text();
    text += fmt::format("{:{}} = {:{}}  # {}\n", keys[i].name, key_width, value, value_width,
                        origin_of(keys[i].name, value, defaults[i].setting.text()));
  }
  for (const auto& [key, value] : entries_of(loaded.config.training_stages)) {
    text += fmt::format("{:{}} = {:{}}  # {}\n", key, key_width, value, value_width, origin_of(key, value, ""));
  }
  return text;
}

std::string list_keys() {
  Config initial;
  const std::vector<ConfigKey> keys = keys_of(initial);
  std::size_t key_width = 0, kind_width = 0, value_width = 0;
  for_each_key(keys, [&](const std::string&, const std::string& name, const ConfigKey& key) {
    key_width = std::max(key_width, name.size());
    kind_width = std::max(kind_width, key.setting.name().size());
    value_width = std::max(value_width, key.setting.text().size());
  });
  const auto line = [&](const std::string& name, const std::string& kind, const std::string& value,
                        const std::string& help) {
    return fmt::format("{:{}}  {:{}}  {:{}}  {}", name, key_width, kind, kind_width, value, value_width, help);
  };
  const std::string first_stage = by_section(keys, [&](const std::string& name, const ConfigKey& key) {
    const auto& [alias, on, off] = key.alias;
    const std::string own = line(name, key.setting.name(), key.setting.text(), key.help);
    if (alias.empty()) return own;
    return own + '\n' +
           line(alias.substr(alias.find('.') + 1), "true | false", "false",
                fmt::format("the same as {} = {}", key.name, on));
  });
  return first_stage + "\n[stage.2]\n" +
         line("from_step", "integer >= 2", "",
              "first step of stage 2; further stages are [stage.3], [stage.4] … (docs/stages.md)") +
         '\n' + line("KEY", "that of KEY", "", "its value from this step on; KEY is one of " + stage_keys_text()) +
         '\n';
}

}  // namespace lyceum

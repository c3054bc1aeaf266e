#include "io/data/tokens/data_sources.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "core/error.h"
#include "io/data/tokens/token_formats.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

std::optional<double> number(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

std::vector<DataSource> data_sources(std::string_view key, const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) return {};
  if (words.size() == 1 || has_tokens(text)) return {{.prefix = text}};
  const std::string shown = excerpt(text, 500);
  std::vector<DataSource> sources;
  const bool weighted = number(words[0]).has_value();
  for (std::size_t i = 0; i < words.size(); i += weighted ? 2 : 1) {
    if (!weighted) {
      sources.push_back({.prefix = words[i]});
      continue;
    }
    const std::optional<double> weight = number(words[i]);
    require_usage(weight && i + 1 < words.size(),
                  "{} = {}: give every source a weight and a prefix, such as 0.7 data/web 0.3 data/code", key, shown);
    require_usage(*weight > 0 && std::isfinite(*weight), "{} = {}: the weight {} is not positive", key, shown,
                  words[i]);
    sources.push_back({.prefix = words[i + 1], .weight = *weight});
  }
  std::set<std::filesystem::path> prefixes;  // a/b and ./a/b are the same
  for (const DataSource& source : sources) {
    require_usage(prefixes.insert(std::filesystem::path(source.prefix).lexically_normal()).second,
                  "{} = {}: {} occurs twice; give it once, with the sum of its weights", key, shown, source.prefix);
  }
  return sources;
}

}  // namespace lyceum

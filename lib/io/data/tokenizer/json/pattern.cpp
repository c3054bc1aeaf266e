#include "io/data/tokenizer/json/pattern.h"

#include <nlohmann/json.hpp>

#include <vector>

namespace lyceum {

Regex read_pattern(const nlohmann::json& json) {
  if (json.contains("String")) return Regex::literal(json.at("String").get<std::string>());
  return Regex(json.at("Regex").get<std::string>());
}

std::string Replace::operator()(std::string_view text) const {
  std::vector<TextRange> matches;
  if (!text.empty()) pattern_.find_all(text, matches);
  std::string out;
  std::size_t at = 0;
  for (const TextRange& match : matches) {
    out.append(text.substr(at, match.begin - at)).append(content_);
    at = match.end;
  }
  return out.append(text.substr(at));
}

std::shared_ptr<const Replace> read_replace(const nlohmann::json& json) {
  return std::make_shared<const Replace>(read_pattern(json.at("pattern")), json.at("content").get<std::string>());
}

}  // namespace lyceum

#include "io/data/tokenizer/json/pattern.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace lyceum {

Regex read_pattern(const nlohmann::json& json) {
  require_input(json.size() == 1, "a pattern must have only the member \"String\" or \"Regex\", but has {} members",
                json.size());
  if (json.contains("String")) return Regex::literal(json.at("String").get<std::string>());
  return Regex(json.at("Regex").get<std::string>());
}

std::string Replace::operator()(std::string_view text, RegexBudget& budget, std::span<std::size_t> offsets) const {
  std::vector<TextRange> matches;
  if (!text.empty()) pattern_.find_all(text, budget, matches);
  std::string out;
  std::size_t at = 0;
  auto offset = offsets.begin();
  const auto keep = [&](std::size_t end) {
    for (; offset != offsets.end() && *offset <= end; ++offset) *offset = out.size() + (std::max(*offset, at) - at);
    out.append(text.substr(at, end - at));
  };
  for (const TextRange& match : matches) {
    keep(match.begin);
    for (; offset != offsets.end() && *offset < match.end; ++offset) *offset = out.size();
    out.append(content_);
    at = match.end;
  }
  keep(text.size());
  return out;
}

std::shared_ptr<const Replace> read_replace(const nlohmann::json& json) {
  return std::make_shared<const Replace>(read_pattern(json.at("pattern")), json.at("content").get<std::string>());
}

}  // namespace lyceum

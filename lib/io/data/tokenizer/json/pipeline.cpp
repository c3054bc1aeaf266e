#include "io/data/tokenizer/json/pipeline.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string>

#include "core/error.h"
#include "io/data/tokenizer/json/regex.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// Calls visit(component) for a normalizer or pre-tokenizer that was read before, and for the components of a Sequence.
template <class Visit>
void visit_components(const nlohmann::json& json, const Visit& visit) {
  if (json.is_null()) return;
  if (json.at("type") != "Sequence") return visit(json);
  for (const auto& one : json.at(json.contains("normalizers") ? "normalizers" : "pretokenizers")) {
    visit_components(one, visit);
  }
}

/// Returns the regular expression of a pattern of tokenizer.json.
std::string expression_of(const nlohmann::json& pattern) {
  if (pattern.contains("String")) return Regex::quoted(pattern.at("String").get<std::string>());
  return pattern.at("Regex");
}

/// True if a text after the replacements has its first character from the beginning of the original text, or begins
/// with a space or `mark`, in front of which Metaspace adds nothing.
bool keeps_beginning(const nlohmann::json& replace, const std::string& mark) {
  const std::string content = replace.at("content");
  const nlohmann::json& pattern = replace.at("pattern");
  const std::string literal = pattern.contains("String") ? pattern.at("String").get<std::string>() : "";
  return content.starts_with(' ') || content.starts_with(mark) ||
         (!content.empty() && !literal.empty() && utf8_length(literal, 0) == literal.size());
}

/// True if a step makes every newline, or every run of newlines and carriage returns, a separate word or removes it.
bool splits_newlines(const nlohmann::json& step, const std::string& expression) {
  if (step.at("type") != "Split" || step.at("invert").get<bool>()) return false;
  if (step.at("behavior") != "Isolated" && step.at("behavior") != "Removed") return false;
  constexpr std::array patterns{"[\r\n]", "[\\r\\n]", "[\r\n]+", "[\\r\\n]+", "\n", "\\n"};
  return std::ranges::find(patterns, expression) != patterns.end();
}

}  // namespace

void require_known_positions(const nlohmann::json& normalizer, const nlohmann::json& pre_tokenizer) {
  if (pre_tokenizer.is_null()) return;
  visit_components(normalizer, [&](const nlohmann::json& one) {
    if (one.at("type") != "Replace") return;
    const std::string expression = expression_of(one.at("pattern"));
    require_input(one.at("content") == "" || !shape_of(expression).may_be_empty,
                  "the normalizer Replace inserts text at empty matches of {}, which is not supported together with a "
                  "pre_tokenizer",
                  excerpt(expression));
    visit_components(pre_tokenizer, [&](const nlohmann::json& step) {
      const bool at_beginning = step.at("type") == "Metaspace" && step.value("prepend_scheme", "always") == "first";
      require_input(!at_beginning || keeps_beginning(one, step.at("replacement")),
                    "the normalizer Replace of {} may change the beginning of a text, which is not supported together "
                    "with the pre_tokenizer Metaspace with prepend_scheme first",
                    excerpt(expression));
    });
  });
}

CutPlaces spans_of_patterns(const nlohmann::json& normalizer, const nlohmann::json& pre_tokenizer,
                            const SpaceForms& forms) {
  CutPlaces places;
  bool newlines_apart = false;
  const auto add = [&](const nlohmann::json& one) {
    if (!one.contains("pattern")) return;
    const std::string expression = expression_of(one.at("pattern"));
    CutPlaces spans = shape_of(expression, forms).spans;
    if (newlines_apart) spans.lines = false;
    places = places | spans;
    newlines_apart = newlines_apart || splits_newlines(one, expression);
  };
  visit_components(normalizer, add);
  visit_components(pre_tokenizer, add);
  return places;
}

}  // namespace lyceum

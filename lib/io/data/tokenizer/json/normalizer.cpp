#include "io/data/tokenizer/json/normalizer.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <utility>

#include "core/error.h"
#include "io/data/tokenizer/json/pattern.h"
#include "io/data/tokenizer/unicode.h"
#include "io/text/text_range.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// Returns a normalizer from a change that does not depend on context across a space or newline that an ASCII character
/// follows (see change_and_move_offsets()).
template <class Change>
Normalizer local(const Change& change) {
  return [change](const std::string& text, RegexBudget&, std::span<std::size_t> offsets) {
    return change_and_move_offsets(text, offsets, change);
  };
}

Normalizer to_form(NormalForm form) {
  return local([form](const std::string& text) { return normalized(text, form); });
}

}  // namespace

std::vector<Normalizer> read_normalizers(const nlohmann::json& json) {
  if (json.is_null()) return {};
  const std::string type = json.at("type");
  if (type == "Sequence") {
    std::vector<Normalizer> all;
    for (const nlohmann::json& one : json.at("normalizers")) {
      for (Normalizer& normalizer : read_normalizers(one)) all.push_back(std::move(normalizer));
    }
    return all;
  }
  if (type == "NFC") return {to_form(NormalForm::nfc)};
  if (type == "NFD") return {to_form(NormalForm::nfd)};
  if (type == "NFKC") return {to_form(NormalForm::nfkc)};
  if (type == "NFKD") return {to_form(NormalForm::nfkd)};
  if (type == "Lowercase") return {local([](const std::string& text) { return lowercase(text); })};
  if (type == "Prepend") {
    return {[begin = json.at("prepend").get<std::string>()](const std::string& text, RegexBudget&,
                                                            std::span<std::size_t> offsets) {
      for (std::size_t& offset : offsets) offset += offset > 0 ? begin.size() : 0;
      return text.empty() ? text : begin + text;
    }};
  }
  if (type == "Replace") {
    return {
        [replace = read_replace(json)](const std::string& text, RegexBudget& budget, std::span<std::size_t> offsets) {
          return (*replace)(text, budget, offsets);
        }};
  }
  fail(ExitCode::bad_input, "the normalizer {} is not supported", excerpt(type));
}

}  // namespace lyceum

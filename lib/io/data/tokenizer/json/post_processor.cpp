#include "io/data/tokenizer/json/post_processor.h"

#include <nlohmann/json.hpp>

#include <array>
#include <string>
#include <utility>

#include "core/error.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// The usual names of the end-of-text token.
constexpr std::array usual_ends{"<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>", "[SEP]"};

/// Returns the token that a post-processor adds at the end of a text; nothing if it adds none.
std::optional<std::string> closing_token(const nlohmann::json& json) {
  if (json.is_null()) return std::nullopt;
  const std::string type = json.at("type");
  if (type == "ByteLevel") return std::nullopt;  // it only changes offsets
  if (type == "BertProcessing" || type == "RobertaProcessing") return json.at("sep").at(0).get<std::string>();
  if (type == "Sequence") {
    std::optional<std::string> last;
    for (const nlohmann::json& one : json.at("processors")) {
      if (std::optional<std::string> token = closing_token(one)) last = std::move(token);
    }
    return last;
  }
  require_input(type == "TemplateProcessing", "the post_processor {} is not supported", excerpt(type));
  std::optional<std::string> last;
  for (const nlohmann::json& item : json.at("single")) {
    if (item.contains("SpecialToken")) {
      last = item.at("SpecialToken").at("id").get<std::string>();
    } else {
      last.reset();
    }
  }
  return last;
}

}  // namespace

std::int32_t end_of_text(const nlohmann::json& post_processor,
                         const std::function<std::optional<std::int32_t>(std::string_view token)>& id_of) {
  std::optional<std::int32_t> found;
  if (const std::optional<std::string> closing = closing_token(post_processor)) found = id_of(*closing);
  for (std::size_t i = 0; !found && i < usual_ends.size(); ++i) found = id_of(usual_ends[i]);
  require_input(found.has_value(),
                "no end-of-text token: its post_processor adds none, and the vocabulary has none of {}", [] {
                  std::string names;
                  for (const char* name : usual_ends) names += names.empty() ? name : std::string(", ") + name;
                  return names;
                }());
  return *found;
}

}  // namespace lyceum

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

/// The tokens that a post-processor adds at the beginning and at the end of a text; nothing if it adds none there.
struct AddedAround {
  std::optional<std::string> first, last;
};

AddedAround added_around(const nlohmann::json& json) {
  if (json.is_null()) return {};
  const std::string type = json.at("type");
  if (type == "ByteLevel") return {};  // it only changes offsets
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {json.at("cls").at(0).get<std::string>(), json.at("sep").at(0).get<std::string>()};
  }
  AddedAround added;
  if (type == "Sequence") {
    for (const nlohmann::json& one : json.at("processors")) {  // each adds its tokens around those of the previous one
      AddedAround outer = added_around(one);
      if (outer.first) added.first = std::move(outer.first);
      if (outer.last) added.last = std::move(outer.last);
    }
    return added;
  }
  require_input(type == "TemplateProcessing", "the post_processor {} is not supported", excerpt(type));
  const nlohmann::json& items = json.at("single");
  const auto token_of = [](const nlohmann::json& item) -> std::optional<std::string> {
    if (!item.contains("SpecialToken")) return std::nullopt;
    return item.at("SpecialToken").at("id").get<std::string>();
  };
  if (items.empty()) return {};
  return {token_of(items.front()), token_of(items.back())};
}

}  // namespace

std::optional<std::int32_t> begin_of_text(const nlohmann::json& post_processor, const TokenIds& id_of) {
  const std::optional<std::string> opening = added_around(post_processor).first;
  return opening ? id_of(*opening) : std::nullopt;
}

std::int32_t end_of_text(const nlohmann::json& post_processor, const TokenIds& id_of) {
  std::optional<std::int32_t> found;
  if (const std::optional<std::string> closing = added_around(post_processor).last) found = id_of(*closing);
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

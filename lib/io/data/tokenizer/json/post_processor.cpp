#include "io/data/tokenizer/json/post_processor.h"

#include <nlohmann/json.hpp>

#include <array>
#include <string>

#include "core/error.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// The usual names of the end-of-text token. The last one is MiniMax's.
constexpr std::array usual_ends{"<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>", "[SEP]",
                                "[e~["};

/// Appends the id of a token, if it has one.
void append(const std::string& token, const TokenIds& id_of, std::vector<std::int32_t>& ids) {
  if (const std::optional<std::int32_t> id = id_of(token)) ids.push_back(*id);
}

AddedAround added_by_template(const nlohmann::json& items, const TokenIds& id_of) {
  AddedAround added;
  bool before = true;
  for (const nlohmann::json& item : items) {
    if (!item.contains("SpecialToken")) {
      before = false;
    } else {
      append(item.at("SpecialToken").at("id"), id_of, before ? added.before : added.after);
    }
  }
  return added;
}

}  // namespace

AddedAround added_around(const nlohmann::json& post_processor, const TokenIds& id_of) {
  AddedAround added;
  if (post_processor.is_null()) return added;
  const std::string type = post_processor.at("type");
  if (type == "ByteLevel") return added;  // it only changes offsets
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    append(post_processor.at("cls").at(0), id_of, added.before);
    append(post_processor.at("sep").at(0), id_of, added.after);
    return added;
  }
  if (type == "Sequence") {
    for (const nlohmann::json& one :
         post_processor.at("processors")) {  // each adds its tokens around the previous ones
      const AddedAround outer = added_around(one, id_of);
      added.before.insert(added.before.begin(), outer.before.begin(), outer.before.end());
      added.after.insert(added.after.end(), outer.after.begin(), outer.after.end());
    }
    return added;
  }
  require_input(type == "TemplateProcessing", "the post_processor {} is not supported", excerpt(type));
  return added_by_template(post_processor.at("single"), id_of);
}

std::int32_t end_of_text(const AddedAround& added, const TokenIds& id_of) {
  if (!added.after.empty()) return added.after.back();
  for (const char* name : usual_ends) {
    if (const std::optional<std::int32_t> id = id_of(name)) return *id;
  }
  std::string names;
  for (const char* name : usual_ends) names += names.empty() ? name : std::string(", ") + name;
  fail(ExitCode::bad_input, "no end-of-text token: its post_processor adds none, and the vocabulary has none of {}",
       names);
}

}  // namespace lyceum

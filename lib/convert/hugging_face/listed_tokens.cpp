#include "convert/hugging_face/listed_tokens.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/hugging_face/fields.h"
#include "convert/hugging_face/model_folder.h"
#include "convert/hugging_face/side_files.h"
#include "core/error.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum::hugging_face {

namespace fs = std::filesystem;

namespace {

constexpr const char* remedy =
    "load the tokenizer with transformers, and save it into the folder with save_pretrained()";

/// A token in a file of the model.
struct ListedToken {
  std::string file, content;
  std::optional<std::int64_t> id = {};
  Json conditions = {};  // lstrip and so on, if the file determines them

  std::string described() const {
    return fmt::format("the added token {}{} of {}", excerpt(content), id ? fmt::format(" ({})", *id) : "", file);
  }
};

/// Returns the entries of a list or an object, or a single value as one entry.
std::vector<Json> entries_of(const Json& value) {
  if (!value.is_array() && !(value.is_object() && !value.contains("content"))) return {value};
  std::vector<Json> entries;
  for (const Json& entry : value) entries.push_back(entry);
  return entries;
}

/// Adds the tokens to which a file, tokenizer_config.json or special_tokens_map.json, gives roles.
void add_named(const Json& side_files, const char* file, std::vector<ListedToken>& tokens) {
  for (const auto& [key, value] : value_of(side_files, file).items()) {
    if (!key.ends_with("_token") && key != "extra_special_tokens" && key != "additional_special_tokens") continue;
    for (const Json& entry : entries_of(value)) {
      if (const std::optional<std::string> text = token_text(entry)) tokens.push_back({.file = file, .content = *text});
    }
  }
}

std::vector<ListedToken> listed_tokens(const Json& side_files) {
  std::vector<ListedToken> tokens;
  const Json& config = value_of(side_files, tokenizer_config_name);
  const bool decoder = config.contains(added_tokens_key);
  for (const auto& [id, token] : value_of(config, added_tokens_key).items()) {
    tokens.push_back({.file = tokenizer_config_name,
                      .content = token_text(token).value_or(""),
                      .id = number_of<std::int64_t>(parse_json<Json>(id, false), added_tokens_key),
                      .conditions = token});
  }
  for (const auto& [content, id] : value_of(side_files, decoder ? "" : added_tokens_name).items()) {
    tokens.push_back(
        {.file = added_tokens_name, .content = content, .id = number_of<std::int64_t>(id, added_tokens_name)});
  }
  add_named(side_files, tokenizer_config_name, tokens);
  if (!decoder) add_named(side_files, special_tokens_name, tokens);
  return tokens;
}

/// Returns the `added_tokens` of a tokenizer.json.
Json added_tokens(const fs::path& file) {
  const std::string text = read_whole_file(file);
  require_shallow(text);
  const auto json = parse_json<nlohmann::json>(text, false);  // fast for many keys, unlike ordered_json
  require_input(json.is_object(), "{} is not a JSON object", file.string());
  return json.contains("added_tokens") ? Json(json.at("added_tokens")) : Json::array();
}

/// Returns whether transformers applies a condition of an added token.
bool condition(const Json& token, const char* key) {
  const Json& value = value_of(token, key);
  const bool absent = std::string_view(key) == "normalized" && value_of(token, "special") != true;
  return value.is_null() ? absent : number_of<bool>(value, key);
}

void require_in_json(const fs::path& file, const std::vector<ListedToken>& tokens) {
  std::map<std::string, Json> added;
  for (const Json& token : added_tokens(file)) added[token_text(token).value_or("")] = token;
  for (const ListedToken& token : tokens) {
    const auto found = added.find(token.content);
    require_input(found != added.end() && (!token.id || value_of(found->second, "id") == *token.id),
                  "{} does not have {}: {}", file.string(), token.described(), remedy);
    if (token.conditions.is_null()) continue;
    for (const char* key : {"lstrip", "rstrip", "single_word", "normalized"}) {
      const bool theirs = condition(token.conditions, key), own = condition(found->second, key);
      require_input(own == theirs, "{} has {} = {} for {}, which has {}: {}", file.string(), key, json_text(Json(own)),
                    token.described(), json_text(Json(theirs)), remedy);
    }
  }
}

}  // namespace

void require_listed_tokens(const fs::path& file, const Tokenizer& tokenizer, const Json& side_files) {
  require_input(value_of(value_of(side_files, tokenizer_config_name), "split_special_tokens") != true,
                "{} has split_special_tokens = true: Lyceum never splits special tokens, set it to false to import the "
                "tokenizer",
                (file.parent_path() / tokenizer_config_name).string());
  std::vector<ListedToken> tokens = listed_tokens(side_files);
  if (tokenizer.is_json()) return require_in_json(file, tokens);
  if (const fs::path json = file.parent_path() / "tokenizer.json"; has_file(json)) {
    for (const Json& token : added_tokens(json)) {
      tokens.push_back({.file = "tokenizer.json",
                        .content = token_text(token).value_or(""),
                        .id = number_of<std::int64_t>(value_of(token, "id"), "id")});
    }
  }
  for (const ListedToken& token : tokens) {
    const std::optional<std::int32_t> own = tokenizer.token(token.content);
    require_input(own && (!token.id || *own == *token.id), "{} does not have {}: {}", file.string(), token.described(),
                  remedy);
  }
}

}  // namespace lyceum::hugging_face

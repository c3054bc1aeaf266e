#include "convert/hugging_face/side_files.h"

#include <boost/algorithm/string/trim.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "convert/hugging_face/fields.h"
#include "convert/hugging_face/model_folder.h"
#include "core/error.h"
#include "io/data/encoding/chat.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"

namespace lyceum::hugging_face {

namespace fs = std::filesystem;

namespace {

constexpr const char *generation_name = "generation_config.json", *template_name = "chat_template.jinja",
                     *more_templates_name = "additional_chat_templates", *eos = "eos_token_id", *eos_text = "eos_token",
                     *bos_text = "bos_token";
constexpr std::array special_tokens{"bos_token_id", eos, "pad_token_id"};

/// Returns the ids of eos_token_id, whose value is a number, a list or null.
std::vector<std::int64_t> ids_of(const Json& value) {
  if (value.is_null()) return {};
  return value.is_array() ? exact_value<std::vector<std::int64_t>>(value)
                          : std::vector{exact_value<std::int64_t>(value)};
}

Json json_of_ids(const std::vector<std::int32_t>& ids) { return ids.size() == 1 ? Json(ids[0]) : Json(ids); }

/// Returns the name of the special token with this role; nothing if there is none.
std::optional<std::string> special_token_of(const Json& side_files, const char* role) {
  const Json& config = value_of(side_files, tokenizer_config_name);
  const Json& map = value_of(side_files, config.contains(added_tokens_key) ? "" : special_tokens_name);
  return token_text(value_of(map.contains(role) ? map : config, role));
}

/// The tokens that end a text, and whether they are those of the imported files.
struct Ends {
  std::vector<std::int32_t> tokens;
  bool imported;
};
Ends ends_of(const Json& imported, const DataConfig& data, const Tokenizer& tokenizer) {
  const std::vector<std::int64_t> theirs = end_tokens_of(imported);
  Ends ends{.tokens = end_tokens(data.chat, data.end_tokens, tokenizer), .imported = !theirs.empty()};
  for (const std::int32_t token : ends.tokens) {
    const bool known = std::ranges::find(theirs, token) != theirs.end();
    ends.imported = ends.imported && (known || token == tokenizer.end_of_document());
  }
  return ends;
}

/// Returns the names of a model's other chat templates, sorted.
std::vector<std::string> more_templates(const fs::path& folder) {
  std::vector<std::string> names;
  if (!fs::is_directory(folder / more_templates_name)) return names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / more_templates_name)) {
    const fs::path file = entry.path().filename();
    if (file.extension() == ".jinja") names.push_back(fs::path(more_templates_name) / file);
  }
  std::ranges::sort(names);
  return names;
}

std::string bytes_of(const Json& file) {
  return file.is_string() ? file.get<std::string>() : json_text(file, 2) + '\n';
}

}  // namespace

Json side_files_of(const fs::path& folder) {
  Json files = Json::object();
  const Json config = read_object(folder / config_name);
  for (const char* key : special_tokens) {
    if (config.contains(key)) files[config_name][key] = config[key];
  }
  for (const char* name : {generation_name, tokenizer_config_name, special_tokens_name, added_tokens_name}) {
    if (has_file(folder / name)) files[name] = read_object(folder / name);
  }
  if (has_file(folder / template_name)) files[template_name] = read_whole_file(folder / template_name);
  for (const std::string& name : more_templates(folder)) files[name] = read_whole_file(folder / name);
  try {
    end_tokens_of(files);
  } catch (const std::exception& problem) {
    fail(ExitCode::bad_input, "{}: {}: {}", folder.string(), eos, problem.what());
  }
  return files;
}

Json side_files_of(const CheckpointReader& checkpoint) {
  const std::string text = checkpoint.transformers();
  return text.empty() ? Json::object() : parse_json<Json>(text);
}

void keep_reach(const Config& imported, Json& side_files) {
  const ModelConfig& model = imported.model;
  side_files[config_name]["batch.seq_len"] = imported.batch.seq_len;
  if (model.window == 0) return;
  side_files[config_name].update(
      {{"model.layers", model.layers}, {"model.window", model.window}, {"model.window_layers", model.window_layers}});
}

std::vector<std::string> restore_reach(const Json& side_files, Config& config) {
  ModelConfig& model = config.model;
  const Json& kept = value_of(side_files, config_name);
  const auto number = [&](const char* key) { return kept.contains(key) ? exact_value<std::int64_t>(kept[key]) : 0; };
  const std::int64_t longest = number("batch.seq_len"), window = number("model.window");
  if (config.batch.seq_len >= longest) return {};
  std::vector<std::string> notes{
      fmt::format("restored   max_position_embeddings = {} of the imported model: the run has batch.seq_len = {}",
                  longest, config.batch.seq_len)};
  const bool removed = model.window == 0 && window >= config.batch.seq_len;
  if (removed && number("model.layers") == model.layers) {
    model.window = window;
    model.window_layers = exact_value<std::vector<std::int64_t>>(kept["model.window_layers"]);
    notes.push_back(fmt::format("restored   the window of {} tokens, which limits no sequence of the run", window));
  } else if (removed) {
    notes.push_back(
        fmt::format("left out   the window of {} tokens of the imported model, which has other layers", window));
  }
  config.batch.seq_len = longest;
  return notes;
}

std::optional<std::string> token_text(const Json& token) {
  const Json& text = token.is_object() ? value_of(token, "content") : token;
  return text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
}

std::vector<std::int64_t> end_tokens_of(const Json& side_files) {
  for (const char* name : {generation_name, config_name}) {
    if (std::vector<std::int64_t> ids = ids_of(value_of(value_of(side_files, name), eos)); !ids.empty()) return ids;
  }
  return {};
}

std::optional<std::string> bos_token_of(const Json& side_files) { return special_token_of(side_files, bos_text); }
std::optional<std::string> eos_token_of(const Json& side_files) { return special_token_of(side_files, eos_text); }

bool adds_bos_token(const Json& side_files) {
  return value_of(value_of(side_files, tokenizer_config_name), "add_bos_token") == true;
}

bool adds_eos_token(const Json& side_files) {
  return value_of(value_of(side_files, tokenizer_config_name), "add_eos_token") == true;
}

std::string chat_of(const Json& side_files) {
  const Json& file = value_of(side_files, template_name);
  const Json& theirs = file.is_null() ? value_of(value_of(side_files, tokenizer_config_name), "chat_template") : file;
  if (!theirs.is_string()) return DataConfig{}.chat;
  const std::string text = boost::trim_copy(theirs.get<std::string>());
  const auto found = std::ranges::find(chat_templates(), text, [](const ChatTemplate& each) { return each.jinja; });
  return found == chat_templates().end() ? DataConfig{}.chat : std::string(found->name);
}

SideFiles exported_side_files(const Json& imported, const DataConfig& data, const Tokenizer* tokenizer,
                              const std::string& tokenizer_config) {
  Json files = imported, own;
  for (const char* key : special_tokens) {
    if (const Json& theirs = value_of(imported, config_name); theirs.contains(key)) own[key] = theirs[key];
  }
  files.erase(config_name);
  if (own.is_null()) {
    // Without the keys, those of the model class would apply.
    for (const char* key : special_tokens) own[key] = nullptr;
  }
  if (!files.contains(generation_name)) {
    files[generation_name] = {{"_from_model_config", true}};
    files[generation_name].update(own);
  }
  if (tokenizer) {
    if (!files.contains(tokenizer_config_name)) files[tokenizer_config_name] = Json::parse(tokenizer_config);
    if (const Ends ends = ends_of(imported, data, *tokenizer); !ends.imported) {
      own[eos] = files[generation_name][eos] = json_of_ids(ends.tokens);
      const std::string text = tokenizer->decode(std::span(ends.tokens).first(1), true);
      files[tokenizer_config_name][eos_text] = text;
      if (files.contains(special_tokens_name)) files[special_tokens_name][eos_text] = text;
    }
    // An imported template is not exported if the run was trained with another one.
    if (data.chat != DataConfig{}.chat && data.chat != chat_of(imported)) {
      files[tokenizer_config_name].erase("chat_template");
      files[template_name] = chat_template(data.chat).jinja;
    }
  }
  SideFiles made{.special_tokens = std::move(own), .files = {}};
  for (const auto& [name, file] : files.items()) made.files[name] = bytes_of(file);
  return made;
}

}  // namespace lyceum::hugging_face

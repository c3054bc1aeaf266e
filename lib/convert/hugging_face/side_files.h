#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/data.h"
#include "convert/hugging_face/architecture.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/tokenizer/tokenizer.h"

/// Side files: the files of a transformers model other than its weights and tokenizer, such as chat template, special
/// tokens and generation settings. A run that began with an imported model keeps that model's side files in its
/// checkpoints, as one JSON object.
namespace lyceum::hugging_face {

constexpr const char *tokenizer_config_name = "tokenizer_config.json", *special_tokens_name = "special_tokens_map.json",
                     *added_tokens_name = "added_tokens.json";
constexpr const char* added_tokens_key = "added_tokens_decoder";  // of tokenizer_config.json

/// Reads the side files of a model's folder and the special tokens of its config.json. Returns an object with one
/// member per file. Throws a bad_input Error that names a damaged file.
Json side_files_of(const std::filesystem::path& folder);
/// Returns the side files in a checkpoint; an empty object if it has none.
Json side_files_of(const CheckpointReader& checkpoint);

/// Adds the sequence length and the window of the imported model to its side files: the run may have shorter sequences.
void keep_reach(const Config& imported, Json& side_files);
/// Gives a run with shorter sequences than the imported model, not resolved, the model's sequence length, and its
/// window if the run has none only because no sequence of the run is longer. Returns lines for the user.
std::vector<std::string> restore_reach(const Json& side_files, Config& config);

/// Returns the text of a token in one of these files: a string, or the `content` of an object; nothing for other
/// values.
std::optional<std::string> token_text(const Json& token);
/// Returns the tokens that end a generated text: eos_token_id of generation_config.json, or else of config.json.
std::vector<std::int64_t> end_tokens_of(const Json& side_files);
/// Return the names of the tokens that begin and end a text: bos_token and eos_token of special_tokens_map.json or
/// tokenizer_config.json; nothing if there is none. As in transformers 5, the latter is the only source if it has an
/// added_tokens_decoder.
std::optional<std::string> bos_token_of(const Json& side_files);
std::optional<std::string> eos_token_of(const Json& side_files);
/// True if add_bos_token or add_eos_token of tokenizer_config.json is true. The tokenizer then adds bos_token before or
/// eos_token after each text, if it is a tokenizer.model; transformers 5 ignores these keys if there is a
/// tokenizer.json, whose post_processor adds tokens.
bool adds_bos_token(const Json& side_files);
bool adds_eos_token(const Json& side_files);
/// Returns the name of Lyceum's chat template that equals the imported one; `auto` if there is none.
std::string chat_of(const Json& side_files);

/// The side files of an exported model.
struct SideFiles {
  Json special_tokens;                       // members for config.json
  std::map<std::string, std::string> files;  // contents, keyed by file name
};
/// Returns the side files of an exported model. `imported` is side_files_of() the checkpoint. `tokenizer` is null if
/// the checkpoint has none. `tokenizer_config` is the tokenizer_config.json of tokenizer_files(). Imported files are
/// unchanged, unless the run ends texts with other tokens or was trained with another chat template. Throws the errors
/// of end_tokens() and chat_template().
SideFiles exported_side_files(const Json& imported, const DataConfig& data, const Tokenizer* tokenizer,
                              const std::string& tokenizer_config);

}  // namespace lyceum::hugging_face

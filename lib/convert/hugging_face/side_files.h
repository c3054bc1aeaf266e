#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
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

/// Reads the side files of a model's folder, and the special tokens of its config.json: an object with an entry for
/// each file. Throws a bad_input Error that names a damaged file.
Json side_files_of(const std::filesystem::path& folder);
/// Returns the side files in a checkpoint; an empty object if it has none.
Json side_files_of(const CheckpointReader& checkpoint);

/// Returns the tokens that end a generated text: eos_token_id of generation_config.json, or else of config.json.
std::vector<std::int64_t> end_tokens_of(const Json& side_files);
/// Returns the name of the chat template that is the imported one; `auto` if it is none of Lyceum's.
std::string chat_of(const Json& side_files);

struct SideFiles {
  Json special_tokens;                       // of config.json
  std::map<std::string, std::string> files;  // file name -> contents
};
/// Returns the files to write beside an exported model. `imported`: side_files_of() its checkpoint; `tokenizer_config`:
/// of tokenizer_files(). The imported files stay as they are, unless the run ends texts with other tokens.
SideFiles exported_side_files(const Json& imported, const DataConfig& data, const Tokenizer* tokenizer,
                              const std::string& tokenizer_config);

}  // namespace lyceum::hugging_face

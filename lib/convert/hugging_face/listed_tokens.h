#pragma once

#include <filesystem>

#include "convert/hugging_face/architecture.h"
#include "io/data/tokenizer/tokenizer.h"

namespace lyceum::hugging_face {

/// Throws a bad_input Error that names the first token which transformers finds in texts because another file of the
/// model lists it, but which the tokenizer lacks or finds under other conditions. `file`: the tokenizer.json or
/// tokenizer.model of the tokenizer. The other files are, as in transformers 5,
/// - tokenizer_config.json: added_tokens_decoder, extra_special_tokens, and all keys that end with _token;
/// - special_tokens_map.json and added_tokens.json, unless there is an added_tokens_decoder;
/// - the tokenizer.json beside a tokenizer.model.
void require_listed_tokens(const std::filesystem::path& file, const Tokenizer& tokenizer, const Json& side_files);

}  // namespace lyceum::hugging_face

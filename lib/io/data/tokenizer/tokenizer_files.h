#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lyceum {

/// What transformers loads a tokenizer from.
struct TokenizerFiles {
  std::map<std::string, std::string> files = {};  // bytes by name
  std::int32_t end_of_document = -1;
  std::vector<std::string> notes = {};  // lines about what could not be expressed in it
};

/// Returns a tokenizer.json as it is; of a SentencePiece model the model itself, and, if it is one for byte-pair
/// encoding whose normalisation can be expressed, a tokenizer.json that gives the same tokens. Errors as Tokenizer's.
TokenizerFiles tokenizer_files(const std::filesystem::path& file);

}  // namespace lyceum

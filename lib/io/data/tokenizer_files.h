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

/// Of a tokenizer.json, which stays as it is, or of a SentencePiece model: the model itself, which transformers 4 reads
/// where it is asked for the slow tokenizer, and for byte-pair encoding without normalisation tokenizer.json, which
/// gives the same tokens. Errors as Tokenizer's.
TokenizerFiles tokenizer_files(const std::filesystem::path& file);

}  // namespace lyceum

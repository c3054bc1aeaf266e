#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lyceum {

/// The files from which transformers loads a tokenizer.
struct TokenizerFiles {
  std::map<std::string, std::string> files = {};  // contents by file name
  std::int32_t end_of_document = -1;
  std::vector<std::string> notes = {};  // lines for the user about what these files cannot express
};

/// Returns the files for a tokenizer. A tokenizer.json is returned unchanged. For a SentencePiece model, returns the
/// model itself, and also an equivalent tokenizer.json if the model is byte-pair encoding with a normalisation that can
/// be expressed. Throws the errors of Tokenizer.
TokenizerFiles tokenizer_files(const std::filesystem::path& file);

}  // namespace lyceum

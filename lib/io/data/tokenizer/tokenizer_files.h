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
  std::int32_t end_of_document = -1;              // id of the end-of-text token
  std::vector<std::string> notes = {};            // lines for the user about what these files cannot express
};

/// Returns the files for a tokenizer: a tokenizer_config.json, and
/// - for a tokenizer.json: the file itself;
/// - for a SentencePiece model: the model itself as tokenizer.model, and an equivalent tokenizer.json if the model is
///   byte-pair encoding with a normalisation that can be expressed. `bos`: name of a token that this tokenizer.json
///   adds before each text; empty, or not in the vocabulary: it adds none.
/// Throws the errors of Tokenizer.
TokenizerFiles tokenizer_files(const std::filesystem::path& file, const std::string& bos = {});

}  // namespace lyceum

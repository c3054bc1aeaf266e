#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/data/encoding/chat.h"
#include "io/data/records/corpus.h"

namespace lyceum {

struct TokenizerTraining {
  std::vector<CorpusItem> files{};  // whole
  std::string json_key = "text";
  const ChatTemplate* chat = nullptr;  // records are chats, and its tokens become symbols of the model
  std::filesystem::path model{};       // written atomically
  std::int64_t vocab = 4096;
  std::int64_t sample_bytes = 8 << 20;  // that the trainer sees, the same share of every file; more gains < 1 %
  std::uint64_t seed = 1;
};
/// Trains a SentencePiece BPE model with byte fallback whose pieces keep to words; the same files, sample and seed give
/// the same bytes. Throws a bad_input Error when a file cannot be read or the text is too little for the vocabulary.
void train_tokenizer(const TokenizerTraining& training);

}  // namespace lyceum

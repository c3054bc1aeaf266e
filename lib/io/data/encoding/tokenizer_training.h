#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/data/encoding/chat.h"
#include "io/data/records/corpus.h"

namespace lyceum {

/// The inputs and settings of train_tokenizer().
struct TokenizerTraining {
  std::vector<CorpusItem> files{};  // one item per file that covers all of it, see find_corpus_files()
  std::string json_key = "text";
  /// If not null, records are chats, and the template's tokens become symbols of the model
  const ChatTemplate* chat = nullptr;
  std::filesystem::path model{};  // path of the model, which is written atomically
  std::int64_t vocab = 4096;
  /// Bytes of text to train on, the same share of every file. A larger sample improves the encoding by less
  /// than 1 %.
  std::int64_t sample_bytes = 8 << 20;
  std::uint64_t seed = 1;
};
/// Trains a SentencePiece BPE model with byte fallback whose pieces do not extend over word boundaries (see words.h).
/// The model has exactly `vocab` pieces. The same files, sample size and seed give the same bytes. Throws a bad_input
/// Error if a file cannot be read or if there is too little text for the vocabulary, and a failed Error if the model
/// cannot be written.
void train_tokenizer(const TokenizerTraining& training);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lyceum {

/// A SentencePiece model. Lossless for any bytes, valid UTF-8 or not: byte fallback, no normalisation, whitespace kept.
/// Threads may share it.
class Tokenizer {
 public:
  explicit Tokenizer(const std::filesystem::path& model);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  std::int64_t vocab() const;
  std::int32_t end_of_document() const;
  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> tokens) const;
  /// Whether no piece reaches across the end of a word (words.h), so that words can be encoded one by one.
  bool keeps_to_words() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Encodes as the tokenizer does, many times faster on much text, as it remembers the words that it has met.
/// One thread uses one; the tokenizer must outlive it.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Appends the tokens of `text`.
  void encode(std::string_view text, std::vector<std::int32_t>& tokens);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  const Tokenizer& tokenizer_;
  std::unordered_map<std::string, std::vector<std::int32_t>, Hash, std::equal_to<>> words_;
};

/// Regular files that look like UTF-8 text, sorted by path, under every argument (a file or a folder); links that
/// leave or loop are skipped, binary and empty files too. A path that does not exist is a bad_input Error.
std::vector<std::filesystem::path> find_text_files(std::span<const std::string> roots);

struct TokenizerTraining {
  std::vector<std::filesystem::path> files;
  std::filesystem::path model;  // written atomically
  std::int64_t vocab = 4096;
  std::int64_t sample_bytes = 8 << 20;  // of text that the trainer sees, drawn evenly from the files; more gains < 1 %
  std::uint64_t seed = 1;
};
/// Trains a BPE model with byte fallback whose pieces keep to words; the same files, sample and seed give the same
/// bytes. Throws a bad_input Error when a file cannot be read or the text is too little for the vocabulary.
void train_tokenizer(const TokenizerTraining& training);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// A SentencePiece model. Lossless: byte fallback, no normalisation, whitespace kept.
class Tokenizer {
 public:
  explicit Tokenizer(const std::filesystem::path& model);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  std::int64_t vocab() const;
  std::int32_t end_of_document() const;
  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Regular files that look like UTF-8 text, sorted by path, under every argument (a file or a folder); links that
/// leave or loop are skipped, binary and empty files too. A path that does not exist is a bad_input Error.
std::vector<std::filesystem::path> find_text_files(std::span<const std::string> roots);

struct TokenizerTraining {
  std::vector<std::filesystem::path> files;
  std::filesystem::path model;  // written atomically
  std::int64_t vocab = 4096;
  std::int64_t sample_bytes = 20 << 20;  // of text that the trainer sees, drawn evenly from the files
  std::uint64_t seed = 1;
  int threads = 1;
};
/// Trains a BPE model with byte fallback; deterministic.
void train_tokenizer(const TokenizerTraining& training);

}  // namespace lyceum

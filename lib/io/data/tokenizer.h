#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/text_part.h"
#include "io/text/word_cache.h"

namespace lyceum {

/// What turns text into tokens: a SentencePiece model, or a `tokenizer.json` of the package `tokenizers`; which of them
/// a file is, is determined by its first byte. Both give the tokens that the reference packages give, `sentencepiece`
/// and `tokenizers`. Threads may share it.
class Tokenizer {
 public:
  /// Throws a bad_input Error that names the file and what is wrong with it.
  explicit Tokenizer(const std::filesystem::path& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  /// Above every token.
  std::int64_t vocab() const;
  std::int32_t end_of_document() const;
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns the last place at which a document that continues after `text` can be cut into parts that are encoded one
  /// by one; 0 if there is none.
  std::size_t cut(std::string_view text) const;
  /// The text of tokens, without that of control tokens.
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  friend class TextEncoder;
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Encodes as the tokenizer does, many times faster on much text, as it remembers the words that it has met.
/// One thread uses one; the tokenizer must outlive it.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Appends the tokens of a document, or of a part of one between two places that Tokenizer::cut() gave.
  void encode(std::string_view text, std::vector<std::int32_t>& tokens, TextPart part = {});

 private:
  const Tokenizer& tokenizer_;
  WordCache words_;
};

}  // namespace lyceum

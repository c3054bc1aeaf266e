#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/text_part.h"
#include "io/text/text_range.h"
#include "io/text/word_cache.h"

namespace lyceum {

/// Turns text into tokens: a SentencePiece model, or a `tokenizer.json` of the package `tokenizers`. Both give the
/// tokens that the reference packages `sentencepiece` and `tokenizers` give. Threads may share it.
class Tokenizer {
 public:
  /// Throws a bad_input Error that names the file and what is wrong with it.
  explicit Tokenizer(const std::filesystem::path& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  /// True if a file with these bytes is read as a tokenizer.json, false if as a SentencePiece model.
  static bool is_json(std::string_view bytes);

  /// Above every token.
  std::int64_t vocab() const;
  std::int32_t end_of_document() const;
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns the last place at which a document that continues after `text` can be cut into parts that are encoded one
  /// by one; 0 if there is none.
  std::size_t cut(std::string_view text) const;
  /// The text of tokens, without that of special tokens unless they are to be shown.
  std::string decode(std::span<const std::int32_t> tokens, bool show_special = false) const;
  /// The token of this name, which may be a special one; nothing if there is none.
  std::optional<std::int32_t> token(std::string_view name) const;

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
  /// Appends the tokens of `text`, UTF-8 and a part of a document, and for each 1 if it covers a byte of a marked
  /// range, else 0.
  void encode(const MarkedText& text, TextPart part, std::vector<std::int32_t>& tokens,
              std::vector<std::uint8_t>& marks);

 private:
  const Tokenizer& tokenizer_;
  WordCache words_;
};

}  // namespace lyceum

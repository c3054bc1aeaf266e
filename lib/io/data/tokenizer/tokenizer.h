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

#include "io/data/tokenizer/added_around.h"
#include "io/text/text_part.h"
#include "io/text/text_range.h"
#include "io/text/word_cache.h"

namespace lyceum {

/// Converts text to tokens and back, with a SentencePiece model or a `tokenizer.json` of the package `tokenizers`.
/// Gives the same tokens as the reference packages `sentencepiece` and `tokenizers`. Threads may share it.
class Tokenizer {
 public:
  /// Reads a tokenizer from a file. Throws a bad_input Error that names the file and the problem.
  explicit Tokenizer(const std::filesystem::path& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  /// True if a file with these bytes is read as a tokenizer.json, false if it is read as a SentencePiece model.
  static bool is_json(std::string_view bytes);

  /// Returns the size of the vocabulary: each token is below it.
  std::int64_t vocab() const;
  /// True for a tokenizer.json, false for a SentencePiece model.
  bool is_json() const;
  /// Returns the end-of-text token, which ends each document of a token file.
  std::int32_t end_of_document() const;
  /// Returns the tokens that a tokenizer.json adds before and after each text (in its post_processor), but encode()
  /// does not. A SentencePiece model does not contain this setting: there are none.
  AddedAround added_around() const;
  /// Returns the tokens of a whole document, without an end-of-text token. Bytes that are not UTF-8 are encoded as
  /// U+FFFD.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns the last offset at which a document that continues after `text` can be cut into two parts that can be
  /// encoded separately; 0 if there is none.
  std::size_t cut(std::string_view text) const;
  /// Returns the text of tokens. Special tokens are left out unless `show_special` is true. Each token must be below
  /// vocab().
  std::string decode(std::span<const std::int32_t> tokens, bool show_special = false) const;
  /// Returns the token of this name, which may be a special token; nothing if there is none.
  std::optional<std::int32_t> token(std::string_view name) const;

 private:
  friend class TextEncoder;
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Encodes as the tokenizer does, but much faster for large texts, since it remembers the tokens of words. Each thread
/// uses its own. The tokenizer must outlive it.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Appends the tokens of a document, or of a part of one that was cut at offsets returned by Tokenizer::cut().
  void encode(std::string_view text, std::vector<std::int32_t>& tokens, TextPart part = {});
  /// Appends the tokens of a document or a part of one, as encode() without marks does, and appends to `marks` 1 for
  /// each token that covers a byte of a marked range, else 0. Precondition: the text is UTF-8.
  void encode(const MarkedText& text, TextPart part, std::vector<std::int32_t>& tokens,
              std::vector<std::uint8_t>& marks);

 private:
  const Tokenizer& tokenizer_;
  WordCache words_;
};

}  // namespace lyceum

#pragma once

#include <cstddef>
#include <cstdint>
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

/// A SentencePiece model with byte fallback, of any type and normalisation. Encodes and decodes as the package
/// `sentencepiece` does. The tokens of a document do not depend on how it is cut into parts at cut(). Threads may share
/// it.
class SentencePieceModel {
 public:
  /// Loads a copy of a serialised model. `name`: file name for messages. Throws a bad_input Error if the bytes are not
  /// a model, or if it lacks an end-of-text token or a token for each byte.
  SentencePieceModel(std::string_view bytes, const std::string& name);
  ~SentencePieceModel();
  SentencePieceModel(SentencePieceModel&&) noexcept;

  /// Returns the size of the vocabulary: each token is below it.
  std::int64_t vocab() const;
  /// Returns the end-of-text token.
  std::int32_t end_of_document() const;
  /// Appends the tokens of a document, or of a part of one between offsets returned by cut(). If `words` is not null,
  /// it caches tokens, which makes encoding much faster.
  void encode(std::string_view text, TextPart part, WordCache* words, std::vector<std::int32_t>& tokens) const;
  /// Returns the last offset at which a document that continues after `text` can be cut without changing its tokens; 0
  /// if there is none, always so for unigram and word models.
  std::size_t cut(std::string_view text) const;
  /// Appends the tokens of a text, as encode() without marks does, and appends to `marks` 1 for each token that covers
  /// a byte of a marked range, else 0. Precondition: the text is UTF-8.
  void encode(const MarkedText& text, TextPart part, WordCache* words, std::vector<std::int32_t>& tokens,
              std::vector<std::uint8_t>& marks) const;
  /// Returns the text of tokens, which must be below vocab(). Control tokens are left out unless `show_special` is
  /// true.
  std::string decode(std::span<const std::int32_t> tokens, bool show_special = false) const;
  /// Returns the token of a piece; nothing if it is not in the vocabulary.
  std::optional<std::int32_t> id(std::string_view piece) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum

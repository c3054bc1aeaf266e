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
/// `sentencepiece` does: the tokens of a document are the same whatever parts it is given in. Threads may share it.
class SentencePieceModel {
 public:
  /// `name` is for messages. Throws a bad_input Error for bytes that are no model, or one without the tokens it takes.
  SentencePieceModel(std::string_view bytes, const std::string& name);
  ~SentencePieceModel();
  SentencePieceModel(SentencePieceModel&&) noexcept;

  std::int64_t vocab() const;
  std::int32_t end_of_document() const;
  /// Appends the tokens of a document or of a part that cut() gave, many times faster where there are `words` to
  /// remember.
  void encode(std::string_view text, TextPart part, WordCache* words, std::vector<std::int32_t>& tokens) const;
  /// Returns the last place at which a document that continues after `text` can be cut without a change of its tokens;
  /// 0 if there is none.
  std::size_t cut(std::string_view text) const;
  /// Encodes a part of a document, and for each token appends 1 if it covers a byte of a marked range, else 0.
  void encode(const MarkedText& text, TextPart part, WordCache* words, std::vector<std::int32_t>& tokens,
              std::vector<std::uint8_t>& marks) const;
  /// The text, without control tokens unless they are to be shown. Tokens must be below vocab().
  std::string decode(std::span<const std::int32_t> tokens, bool show_special = false) const;
  /// The token of a piece; nothing for one that is not in the vocabulary.
  std::optional<std::int32_t> id(std::string_view piece) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/word_cache.h"

namespace lyceum {

/// A SentencePiece model. Lossless for any bytes, valid UTF-8 or not: byte fallback, no normalisation, whitespace kept.
/// Threads may share it.
class SentencePieceModel {
 public:
  /// `name` is for messages. Throws a bad_input Error for bytes that are no model, or one without the tokens it takes.
  SentencePieceModel(std::string_view bytes, const std::string& name);
  ~SentencePieceModel();
  SentencePieceModel(SentencePieceModel&&) noexcept;

  std::int64_t vocab() const;
  std::int32_t end_of_document() const;
  /// Appends the tokens of a text, many times faster where there are `words` to remember.
  void encode(std::string_view text, WordCache* words, std::vector<std::int32_t>& tokens) const;
  /// Tokens must be below vocab().
  std::string decode(std::span<const std::int32_t> tokens) const;
  /// Whether no piece reaches across the end of a word (words.h), so that words can be encoded one by one.
  bool keeps_to_words() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum

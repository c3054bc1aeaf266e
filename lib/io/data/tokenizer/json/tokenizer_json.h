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

/// A `tokenizer.json` as the package `tokenizers` writes it: byte-level BPE, BPE with byte fallback, Unigram. Encodes
/// and decodes as that package does; what is not UTF-8 is first replaced as Python's errors="replace" does. Threads may
/// share it.
class TokenizerJson {
 public:
  /// `name` is for messages. Throws a bad_input Error that names a component that is not supported, or what is wrong.
  TokenizerJson(std::string_view json, const std::string& name);
  ~TokenizerJson();
  TokenizerJson(TokenizerJson&&) noexcept;

  /// Above every id.
  std::int64_t vocab() const;
  /// What the post-processor puts after a text, else the first of the usual names that the vocabulary has.
  std::int32_t end_of_document() const;
  /// Appends the ids of a document or of a part that cut() gave, without those that the post-processor would add; many
  /// times faster where there are `words` to remember.
  void encode(std::string_view text, TextPart part, WordCache* words, std::vector<std::int32_t>& ids) const;
  /// Returns the last place at which a document that continues after `text` can be cut; 0 if there is none. That is
  /// between two words, where every published pre-tokenizer begins a piece. A tokenizer that puts something in front of
  /// a text, or that does not split it, encodes whole documents.
  std::size_t cut(std::string_view text) const;
  /// Encodes a part of a document, and for each id appends 1 if it covers a byte of a marked range, else 0. The
  /// text must be UTF-8.
  void encode(const MarkedText& text, TextPart part, WordCache* words, std::vector<std::int32_t>& ids,
              std::vector<std::uint8_t>& marks) const;
  /// The text, without special tokens unless they are to be shown. Ids must be below vocab().
  std::string decode(std::span<const std::int32_t> ids, bool show_special = false) const;
  /// The id of a token; nothing for one that is not in the vocabulary.
  std::optional<std::int32_t> id(std::string_view token) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum

#pragma once

#include <cstddef>
#include <cstdint>
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

/// A `tokenizer.json` of the package `tokenizers`: byte-level BPE, BPE with byte fallback, or Unigram. Encodes and
/// decodes as that package does. Text that is not UTF-8 is first decoded as with Python's errors="replace". Threads may
/// share it.
class TokenizerJson {
 public:
  /// Parses a tokenizer.json. `name`: file name for messages. Throws a bad_input Error that names the problem or a
  /// component that is not supported.
  TokenizerJson(std::string_view json, const std::string& name);
  ~TokenizerJson();
  TokenizerJson(TokenizerJson&&) noexcept;

  /// Returns the size of the vocabulary: each id is below it.
  std::int64_t vocab() const;
  /// Returns the end-of-text token, see end_of_text().
  std::int32_t end_of_document() const;
  /// Returns the tokens that the post-processor adds around a text.
  const AddedAround& added_around() const;
  /// Appends the ids of a document, or of a part of one between offsets returned by cut(), without those that the
  /// post-processor would add. If `words` is not null, it caches ids, which makes encoding much faster.
  void encode(std::string_view text, TextPart part, WordCache* words, std::vector<std::int32_t>& ids) const;
  /// Returns the last offset at which a document that continues after `text` can be cut; 0 if there is none. Cuts are
  /// between two words or lines that no token and no match of a pattern can extend over, and the text of 1 kB or more
  /// on both sides has the same ids when it is cut. Returns 0 for a tokenizer that adds something in front of a text or
  /// does not split it: it must encode whole documents.
  std::size_t cut(std::string_view text) const;
  /// Appends the ids of a document or of a part of one, as encode() without marks does, and appends to `marks` 1 for
  /// each id that covers a byte of a marked range, else 0. Throws a bad_input Error if the text is not UTF-8.
  void encode(const MarkedText& text, TextPart part, WordCache* words, std::vector<std::int32_t>& ids,
              std::vector<std::uint8_t>& marks) const;
  /// Returns the text of ids, which must be below vocab(). Special tokens are left out unless `show_special` is true.
  std::string decode(std::span<const std::int32_t> ids, bool show_special = false) const;
  /// Returns the id of a token, which may be an added token; nothing if there is none.
  std::optional<std::int32_t> id(std::string_view token) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum

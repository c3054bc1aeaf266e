#pragma once

#include <bitset>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/data/tokenizer/sentencepiece/piece_model.h"
#include "io/data/tokenizer/trie.h"
#include "io/text/text_part.h"

namespace lyceum {

/// Normalises a text as SentencePiece does before segmentation. Each byte that is not UTF-8 becomes U+FFFD.
class PieceNormalizer {
 public:
  /// `symbols`: the user-defined symbols, which are not changed. Throws a bad_input Error if the charsmap is damaged.
  PieceNormalizer(const PieceModel::Normalization& normalization, bool space_behind,
                  const std::vector<std::string_view>& symbols);

  /// Returns the normalised text. Replaces each of `offsets`, which are ascending offsets in `text`, by the offset of
  /// the same position in the result. An offset within characters that are replaced together becomes the offset of the
  /// beginning of their replacement.
  std::string operator()(std::string_view text, TextPart part = {}, std::span<std::size_t> offsets = {}) const;
  /// True if `text`, which may be a part of a longer document, can be cut at `at`: the normalised parts, concatenated,
  /// equal the normalised document, and text[at - 1] and text[at] are unchanged by it.
  bool separates(std::string_view text, std::size_t at) const;

 private:
  /// Normalises the longest rule, symbol or single character at the beginning of a text. Returns its replacement, and
  /// how many bytes of the text it replaces.
  std::pair<std::string_view, std::size_t> normalize_prefix(std::string_view text) const;
  void read_charsmap(std::string_view charsmap);
  /// Adds the bytes of a rule or symbol, within which a text must not be cut, to the members below.
  void add_key(std::string_view text);

  bool adds_space_, joins_spaces_, marks_spaces_, space_behind_;
  Trie symbols_, rules_;
  std::vector<std::string> replacements_;  // the replacement of each rule
  std::size_t longest_key_ = 0;            // size of the longest rule or symbol in bytes
  std::bitset<256> first_bytes_;           // first bytes of rules and symbols
  std::bitset<256> unchanged_;      // ASCII characters that are neither spaces nor the beginning of a rule or symbol
  std::bitset<256> last_bytes_;     // last bytes of rules and symbols of more than one byte
  std::bitset<65536> inner_pairs_;  // pairs of adjacent bytes in rules and symbols
};

}  // namespace lyceum

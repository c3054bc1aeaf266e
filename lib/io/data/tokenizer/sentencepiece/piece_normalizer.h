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

/// Changes a text as SentencePiece does before it cuts it into pieces. What is not UTF-8 becomes U+FFFD, one a byte.
class PieceNormalizer {
 public:
  /// `symbols` are the user-defined ones, which are not changed. Throws a bad_input Error for a charsmap that is
  /// damaged.
  PieceNormalizer(const PieceModel::Normalization& normalization, bool space_behind,
                  const std::vector<std::string_view>& symbols);

  /// Moves `places`, ascending offsets into the text, to the same places of the result; one within characters that are
  /// replaced together goes in front of these.
  std::string operator()(std::string_view text, TextPart part = {}, std::span<std::size_t> places = {}) const;
  /// True if text[at - 1] and text[at] stay as they are in every document that contains `text`, and the normalised
  /// parts before and behind are those of the normalised document.
  bool separates(std::string_view text, std::size_t at) const;

 private:
  /// Returns the normalised form of the beginning of a text, and how many bytes of the text it replaces.
  std::pair<std::string_view, std::size_t> prefix(std::string_view text) const;
  void read_charsmap(std::string_view charsmap);
  void keep_together(std::string_view text);

  bool adds_space_, joins_spaces_, marks_spaces_, space_behind_;
  Trie symbols_, rules_;
  std::vector<std::string> replacements_;  // of the rules
  std::size_t longest_ = 0;                // bytes of a rule or a symbol
  std::bitset<256> changed_;               // bytes that a rule or a symbol begins with
  std::bitset<256> stays_;                 // ASCII that is neither changed nor a space
  std::bitset<256> ends_;                  // bytes that a longer one ends with
  std::bitset<65536> together_;            // neighbours within a rule or a symbol
};

}  // namespace lyceum

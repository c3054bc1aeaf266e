#pragma once

#include <bitset>
#include <cstddef>
#include <string_view>

#include "io/data/tokenizer/sentencepiece/piece_model.h"

namespace lyceum {

/// The pairs of bytes at the boundaries between two adjacent characters of any piece: the last byte of one and the
/// first byte of the next. U+2581 counts as a space, since many other characters begin with the same byte.
class Neighbours {
 public:
  /// Adds the pairs of a piece.
  void join(std::string_view piece) {
    for (std::size_t at = 0, length = 0, last = 0; at < piece.size(); at += length) {
      length = piece_character_bytes(piece, at);
      if (at > 0) joined_.set(pair_of(end_of(piece.substr(last, at - last)), beginning_of(piece.substr(at, length))));
      last = at;
    }
  }
  /// Adds all pairs.
  void join_all() { joined_.set(); }
  /// True if a piece has this pair.
  bool joined(char left, char right) const { return joined_.test(pair_of(left, right)); }
  /// Returns the end of the longest part of a text, from `begin` on, in which all adjacent characters are joined.
  /// Precondition: begin < text.size().
  std::size_t end_of_part(std::string_view text, std::size_t begin) const {
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    std::size_t at = begin, length = piece_character_bytes(text, at);
    for (;;) {
      while (length == 1 && at + 1 < text.size() && is_ascii(text[at]) && is_ascii(text[at + 1])) {
        if (!joined(text[at], text[at + 1])) return at + 1;
        ++at;
      }
      const char left = end_of(text.substr(at, length));
      at += length;
      if (at == text.size()) return at;
      length = piece_character_bytes(text, at);
      if (!joined(left, beginning_of(text.substr(at, length)))) return at;
    }
  }

 private:
  static char beginning_of(std::string_view character) { return character == space_mark ? ' ' : character.front(); }
  static char end_of(std::string_view character) { return character == space_mark ? ' ' : character.back(); }
  static std::size_t pair_of(char left, char right) {
    return static_cast<std::size_t>(static_cast<unsigned char>(left)) << 8 | static_cast<unsigned char>(right);
  }

  std::bitset<65536> joined_;
};

}  // namespace lyceum

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lyceum {

/// U+2581, which SentencePiece writes for a space.
constexpr std::string_view space_mark = "\xE2\x96\x81";

/// Returns the bytes of the character that begins at text[at], by its first byte alone, as SentencePiece does.
inline std::size_t piece_character_bytes(std::string_view text, std::size_t at) {
  constexpr std::array<std::uint8_t, 16> bytes{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return std::min<std::size_t>(bytes[static_cast<unsigned char>(text[at]) >> 4], text.size() - at);
}

/// A parsed SentencePiece model: its pieces and its settings. All views are of the serialised model.
struct PieceModel {
  enum class Segmentation : std::uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum Kind : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string_view text;
    float score = 0;
    Kind kind = normal;
    /// True for a token that transformers and `tokenizers` look for before they cut the text between.
    bool added() const { return kind == unknown || kind == control || kind == user_defined; }
    /// True for a piece that segmentation finds in a text by its characters.
    bool in_text() const { return kind == normal || kind == user_defined || kind == unused; }
  };
  /// How a text is changed before it is cut into pieces, or after its pieces are joined.
  struct Normalization {
    std::string_view charsmap;  // replacements, compiled
    bool adds_space = true;     // in front of the text, or behind it
    bool joins_spaces = true;   // runs of spaces become one, and none is left at the ends
    bool marks_spaces = true;   // U+2581 for each
  };

  std::vector<Piece> pieces;
  Segmentation segmentation = Segmentation::unigram;
  Normalization normalization, denormalization;
  bool space_behind = false;
  std::string_view unknown_text = " \xE2\x81\x87 ";  // of the unknown token when it is decoded

  /// `bytes` must be a model that SentencePiece loads, and outlive this.
  explicit PieceModel(std::string_view bytes);
};

/// Returns the texts of the user-defined pieces.
std::vector<std::string_view> symbols_of(const PieceModel& model);

}  // namespace lyceum

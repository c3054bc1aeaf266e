#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lyceum {

/// U+2581, with which SentencePiece represents a space.
constexpr std::string_view space_mark = "\xE2\x96\x81";

/// Returns the size in bytes of the character that begins at text[at], determined from its first byte alone, as in
/// SentencePiece.
inline std::size_t piece_character_bytes(std::string_view text, std::size_t at) {
  constexpr std::array<std::uint8_t, 16> bytes{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return std::min<std::size_t>(bytes[static_cast<unsigned char>(text[at]) >> 4], text.size() - at);
}

/// A parsed SentencePiece model: its pieces and settings. All views refer to the serialised model.
struct PieceModel {
  enum class Segmentation : std::uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum Kind : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string_view text;
    float score = 0;
    Kind kind = normal;
    /// True for a token that transformers and `tokenizers` search for before the rest of the text is segmented.
    bool added() const { return kind == unknown || kind == control || kind == user_defined; }
    /// True for a piece that segmentation can find in a text.
    bool in_text() const { return kind == normal || kind == user_defined || kind == unused; }
  };
  /// How a text is changed before segmentation, or after the pieces are joined.
  struct Normalization {
    std::string_view charsmap;  // compiled replacements
    bool adds_space = true;     // at the beginning of the text, or at its end if space_behind
    bool joins_spaces = true;   // consecutive spaces become one, and spaces at both ends are removed
    bool marks_spaces = true;   // spaces become U+2581
  };

  std::vector<Piece> pieces;
  Segmentation segmentation = Segmentation::unigram;
  Normalization normalization, denormalization;
  bool space_behind = false;
  std::string_view unknown_text = " \xE2\x81\x87 ";  // the text of the unknown token when it is decoded

  /// Parses a serialised model. `bytes` must be a model that SentencePiece loads, and must outlive this.
  explicit PieceModel(std::string_view bytes);
};

/// Returns the texts of the user-defined pieces.
std::vector<std::string_view> symbols_of(const PieceModel& model);

}  // namespace lyceum

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "io/data/tokenizer/sentencepiece/piece_model.h"
#include "io/text/word_cache.h"

namespace lyceum {

/// Segments a normalised text into pieces as SentencePiece does. Text without a piece becomes the tokens of its bytes.
class PieceSegmentation {
 public:
  using Bytes = std::array<std::int32_t, 256>;  // the token for each byte

  virtual ~PieceSegmentation() = default;
  /// Appends the tokens of a text. `words` caches the tokens of parts, or is null; it does not change the result.
  /// Throws a bad_input Error if a byte-pair model would have to encode 2 GiB in one part.
  virtual void encode(std::string_view text, WordCache* words, std::vector<std::int32_t>& tokens) const = 0;
  /// True if a text can be cut between two bytes `left` and `right`, of which the first ends a character, without
  /// changing its tokens.
  virtual bool separates(char left, char right) const = 0;
};

/// Returns the segmentation for the model's type. It keeps references to the model and to `bytes`, which must outlive
/// it. Throws a bad_input Error if the type is unknown.
std::unique_ptr<PieceSegmentation> make_segmentation(const PieceModel& model, const PieceSegmentation::Bytes& bytes);

}  // namespace lyceum

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

/// Cuts a normalised text into pieces as SentencePiece does. What has no piece becomes the tokens of its bytes.
class PieceSegmentation {
 public:
  using Bytes = std::array<std::int32_t, 256>;  // the token of each byte

  virtual ~PieceSegmentation() = default;
  /// Appends the tokens of a text, the same whatever `words` remembers.
  virtual void encode(std::string_view text, WordCache* words, std::vector<std::int32_t>& tokens) const = 0;
  /// True if the tokens on both sides of these two neighbouring bytes, each the end of a character, do not depend on
  /// the other side.
  virtual bool separates(char left, char right) const = 0;
};

/// The segmentation of a model's type. Views of the model stay in it.
std::unique_ptr<PieceSegmentation> make_segmentation(const PieceModel& model, const PieceSegmentation::Bytes& bytes);

}  // namespace lyceum

#include "io/data/tokenizer/sentencepiece/piece_segmentation.h"

#include <algorithm>

#include "core/error.h"
#include "io/data/tokenizer/sentencepiece/byte_pairs.h"
#include "io/data/tokenizer/sentencepiece/neighbours.h"
#include "io/data/tokenizer/sentencepiece/piece_table.h"
#include "io/data/tokenizer/sentencepiece/unigram_segmentation.h"

namespace lyceum {

namespace {

using Tokens = std::vector<std::int32_t>;

/// Segments a text into words: a space and everything up to the next one.
class Words : public PieceSegmentation {
 public:
  Words(const PieceModel& model, const Bytes& bytes) : pieces_(model, bytes) {}

  void encode(std::string_view text, WordCache*, Tokens& tokens) const override {
    for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
      end = std::min(text.find(space_mark, at + 1), text.size());
      const std::string_view word = text.substr(at, end - at);
      pieces_.append(word, pieces_.id(word), tokens);
    }
  }
  bool separates(char, char) const override { return false; }

 private:
  PieceTable pieces_;
};

/// Segments a text into single characters and user-defined symbols.
class Characters : public PieceSegmentation {
 public:
  Characters(const PieceModel& model, const Bytes& bytes) : pieces_(model, bytes) {
    for (const PieceModel::Piece& piece : model.pieces) {
      if (piece.kind == PieceModel::user_defined) neighbours_.join(piece.text);
    }
  }

  void encode(std::string_view text, WordCache*, Tokens& tokens) const override {
    for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
      bool user_defined = false;
      length = pieces_.symbol_bytes(text, at, user_defined);
      const std::string_view symbol = text.substr(at, length);
      pieces_.append(symbol, pieces_.id(symbol), tokens);
    }
  }
  bool separates(char left, char right) const override { return !neighbours_.joined(left, right); }

 private:
  PieceTable pieces_;
  Neighbours neighbours_;
};

}  // namespace

std::unique_ptr<PieceSegmentation> make_segmentation(const PieceModel& model, const PieceSegmentation::Bytes& bytes) {
  switch (model.segmentation) {
    case PieceModel::Segmentation::unigram: return make_unigram_segmentation(model, bytes);
    case PieceModel::Segmentation::bpe: return make_byte_pairs(model, bytes);
    case PieceModel::Segmentation::word: return std::make_unique<Words>(model, bytes);
    case PieceModel::Segmentation::character: return std::make_unique<Characters>(model, bytes);
  }
  fail(ExitCode::bad_input, "its model type {} is not supported", static_cast<int>(model.segmentation));
}

}  // namespace lyceum

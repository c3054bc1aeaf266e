#pragma once

#include <memory>

#include "io/data/tokenizer/sentencepiece/piece_model.h"
#include "io/data/tokenizer/sentencepiece/piece_segmentation.h"

namespace lyceum {

/// The segmentation of a unigram model. [Kudo 2018] Views of the model stay in it. Throws a bad_input Error for a score
/// that is not finite.
std::unique_ptr<PieceSegmentation> make_best_pieces(const PieceModel& model, const PieceSegmentation::Bytes& bytes);

}  // namespace lyceum

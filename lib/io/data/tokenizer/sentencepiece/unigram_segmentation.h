#pragma once

#include <memory>

#include "io/data/tokenizer/sentencepiece/piece_model.h"
#include "io/data/tokenizer/sentencepiece/piece_segmentation.h"

namespace lyceum {

/// Returns the segmentation of a unigram model. [Kudo 2018] It keeps references to the model and to `bytes`, which must
/// outlive it. Throws a bad_input Error if a score is not finite.
std::unique_ptr<PieceSegmentation> make_unigram_segmentation(const PieceModel& model,
                                                             const PieceSegmentation::Bytes& bytes);

}  // namespace lyceum

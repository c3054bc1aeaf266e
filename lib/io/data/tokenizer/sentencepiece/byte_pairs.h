#pragma once

#include <memory>

#include "io/data/tokenizer/sentencepiece/piece_model.h"
#include "io/data/tokenizer/sentencepiece/piece_segmentation.h"

namespace lyceum {

/// Returns the segmentation of a byte-pair encoding model. [Sennrich et al. 2016] It keeps references to the model and
/// to `bytes`, which must outlive it.
std::unique_ptr<PieceSegmentation> make_byte_pairs(const PieceModel& model, const PieceSegmentation::Bytes& bytes);

}  // namespace lyceum

#pragma once

#include <memory>

#include "io/data/tokenizer/sentencepiece/piece_model.h"
#include "io/data/tokenizer/sentencepiece/piece_segmentation.h"

namespace lyceum {

/// The segmentation by byte-pair encoding. [Sennrich et al. 2016] Views of the model stay in it.
std::unique_ptr<PieceSegmentation> make_byte_pairs(const PieceModel& model, const PieceSegmentation::Bytes& bytes);

}  // namespace lyceum

#pragma once

#include <cstdint>

#include "config/model.h"
#include "io/routing/mixture_id.h"
#include "model/sublayer_tensor.h"

namespace lyceum {

/// Sites of dropout (DropoutMask::site): that of the embeddings, and those of the results of the two halves of a block.
inline constexpr std::int64_t embedding_site = 0;
constexpr std::int64_t dropout_site(std::int64_t layer, Site half) {
  return 1 + 2 * layer + (half == Site::ffn ? 1 : 0);
}

/// The declarations of the learnt dropout rates of the two halves of every block, named like those of BlockNorms. A
/// rate p is stored as log p − log(1 − p). Only for models with learns_rates().
struct BlockRates {
  SublayerTensor attention, ffn;
};
BlockRates block_rates(const ModelConfig& model);
/// Returns the declaration of the learnt rate of the embeddings' dropout, with its whole name in a checkpoint.
SublayerTensor embedding_rate(const ModelConfig& model);

}  // namespace lyceum

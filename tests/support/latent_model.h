#pragma once

#include <cstdint>

#include "config/config.h"

namespace lyceum {

/// Gives a model latent attention with heads of 4 + 2 columns of queries and keys and 5 of values, and a latent of 7
/// columns for keys and values. `query_rank`: width of the latent of queries; 0: none.
inline void make_latent(ModelConfig& model, std::int64_t query_rank) {
  model.attention = AttentionKind::latent;
  model.kv_heads = model.head_dim = 0;
  model.latent = {.query_rank = query_rank, .key_value_rank = 7, .nope_dim = 4, .rope_dim = 2, .value_dim = 5};
  model.positions.layout = RopeLayout::interleaved;
}

}  // namespace lyceum

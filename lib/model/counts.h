#pragma once

#include <cstdint>

#include "config/config.h"

namespace lyceum {

/// Parameters, and those of them that one token uses: what it chooses on the mean, where choices differ in size.
struct Count {
  std::int64_t total = 0, activated = 0;
  Count& operator+=(const Count& other);
  Count operator+(const Count& other) const { return Count(*this) += other; }
};

/// One block by its parts, from a resolved configuration alone: the sums of the tensors that its halves declare, see
/// SublayerSpec and TensorPart.
struct BlockCounts {
  Count attention;  // query, key, value and output matrices, biases of the first three
  Count ffn;        // the dense FFN
  Count shared;     // shared experts
  Count routed;     // routed experts
  Count latent;     // projections to the width that they work in, and back
  Count routers;    // of experts, attention experts, sub-dimensions; the gate of shared experts
  Count norms;
  Count fusion;  // Monarch matrices: two block-diagonal factors of hidden · fusion_width each
  /// AttentionCosts::score_width and value_width.
  std::int64_t attention_width = 0, value_width = 0;

  Count sum() const;
};
BlockCounts count_block(const Config& config, std::int64_t layer);

/// Sizes that follow from a resolved configuration alone.
struct ModelCounts {
  std::int64_t parameters;     // all
  std::int64_t activated;      // used by one token: the shared and the top_k mean-width experts, both embeddings
  std::int64_t experts_total;  // parameters of all experts, shared ones too
  std::int64_t experts_activated;
  BlockCounts blocks;       // all of them together
  Count embedding, output;  // the tables, the final norm with the second; a tied table counts as embedding
  /// Forward and backward of one sequence: 6 · (activated without the input embedding) · T + 6 · layers · T² ·
  /// (attention_width + value_width of a block), attention counted in full as the papers do.
  double flops_per_sequence;
  /// The same with causal attention at half, as MFU counts it.
  double causal_flops_per_sequence;
};
ModelCounts count_model(const Config& config);

}  // namespace lyceum

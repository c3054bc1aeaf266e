#pragma once

#include <cstdint>

#include "config/config.h"

namespace lyceum {

/// Number of parameters: all of them, and those that one token activates. If the choices of a router differ in size,
/// the activated ones are a mean.
struct Count {
  std::int64_t total = 0, activated = 0;
  Count& operator+=(const Count& other);
  Count operator+(const Count& other) const { return Count(*this) += other; }
};

/// Parameters of one block by kind, see TensorPart: sums over the tensors that the SublayerSpec of each half declares.
struct BlockCounts {
  Count attention;  // matrices of queries, keys, values and outputs, their biases, and sinks
  Count ffn;        // the dense FFN
  Count shared;     // shared experts
  Count routed;     // routed experts
  Count latent;     // moe.latent_hidden: the projections to the latent width and back
  Count routers;    // routers of experts, attention experts and sub-dimensions, and the gate of shared experts
  Count norms;      // with the learnt rates of dropout
  /// Monarch matrices of sub-dimensions, each of two block-diagonal factors with hidden · fusion_width elements.
  Count fusion;
  /// FLOPs of the scores and the weighted sums of values of a sequence of T = batch.seq_len tokens, forward. Each of
  /// T · W pairs of a query and a key, where W is the window or, without one, T, takes 2 FLOPs for each element of
  /// AttentionCosts::score_width and AttentionCosts::value_width. With the causal mask, a query does not see later
  /// keys, and T · W − W²/2 pairs remain.
  double attention_flops = 0, causal_attention_flops = 0;

  /// Returns the parameters of the whole block.
  Count sum() const;
};
/// Returns the counts of block `layer`, one of all_blocks(), of a resolved configuration.
BlockCounts count_block(const Config& config, std::int64_t layer);

/// Parameters and FLOPs of the model that a resolved configuration describes. All parameters but `modules` are those of
/// the model without modules of multi-token prediction, which evaluation and generation use.
struct ModelCounts {
  std::int64_t parameters;  // all
  /// Parameters that one token uses: all but those of experts and sub-dimensions that it does not choose. Experts count
  /// with their mean width. Both embedding tables are included.
  std::int64_t activated;
  std::int64_t experts_total;      // parameters of all routed and shared experts
  std::int64_t experts_activated;  // the part of experts_total that one token uses
  BlockCounts blocks;              // sum over all blocks
  /// The embedding table with its learnt rate; the output head and the final norm. A tied table is only in `embedding`.
  Count embedding, output;
  Count modules;  // all modules of multi-token prediction, without the embedding and the head, which are the model's
  /// FLOPs of forward and backward of one sequence of T tokens: 6 · (activated parameters without the input embedding)
  /// · T + 3 · BlockCounts::attention_flops. Modules are included, with one more use of the head each. Attention is
  /// counted without a causal mask, as in the papers.
  double flops_per_sequence;
  /// FLOPs of forward and backward with 3 · BlockCounts::causal_attention_flops, since the mask is causal. MFU is
  /// computed from this number.
  double causal_flops_per_sequence;
};
/// Returns the counts of the model that a resolved configuration describes.
ModelCounts count_model(const Config& config);

}  // namespace lyceum

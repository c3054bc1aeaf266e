#pragma once

#include <cstdint>
#include <string>

#include "autograd/latent_attention.h"
#include "config/config.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Returns the declaration of the latent attention of block `layer`.
SublayerSpec latent_attention_spec(const Config& config, std::int64_t layer);

/// Multi-head latent attention [DeepSeek-V2]: queries, keys and values are computed from vectors of few elements, see
/// autograd/latent_attention.h. Tensors, with the names of transformers:
///   q_proj, or q_a_proj, q_a_layernorm and q_b_proj with latent_attention.query_rank;
///   kv_a_proj_with_mqa: rows of the latent of keys and values, then of the key that all heads share;
///   kv_a_layernorm; kv_b_proj: per head, rows of the key, then of the value; o_proj.
/// Tensor ranks share the heads. The projections to latents are replicated: each rank applies them to its own range of
/// the tokens, and the latents are gathered.
class LatentAttentionLayer : public Sublayer {
 public:
  /// Adds its parameters to `units`. `prefix`: prefix of the tensor names, without a slash at the end. Throws a usage
  /// Error if the heads cannot be divided among the tensor ranks. `mesh` must outlive this.
  LatentAttentionLayer(const ModelConfig& config, std::int64_t layer, const std::string& prefix, const Mesh& mesh,
                       const SublayerUnits& units);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;
  Parameter* output_matrix() const override { return out_; }
  void set_stage(const ModelConfig& config) override;

 private:
  /// The queries of this rank's heads for all tokens, and what they were computed from.
  struct Queries {
    Variable q, from;
  };
  Queries queries(Tape& tape, const TokenLayout& layout, const Variable& x, const Variable& own) const;
  /// Returns the operation for a pass.
  LatentAttention attention(const Pass& pass) const;

  std::int64_t layer_;
  LatentHeads heads_;  // of this rank
  std::int64_t window_;
  double scale_;  // of scores; depends on yarn's factor, which a training stage may change
  double eps_;
  RopeLayout rope_layout_;
  Parameter *q_down_ = nullptr, *q_norm_ = nullptr;  // null without compression of queries
  Parameter* q_up_;                                  // q_b_proj, or q_proj
  Parameter *kv_down_, *kv_norm_, *kv_up_, *out_;
};

}  // namespace lyceum

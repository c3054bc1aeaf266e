#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/attention/heads.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/mesh.h"
#include "parallel/tensor/qk_norm.h"

namespace lyceum {

/// Returns the declarations of q_proj, k_proj and v_proj, stacked as "qkv" [queries + keys + values, hidden], and of
/// o_proj [hidden, results].
std::vector<SublayerTensor> attention_matrices(const ModelConfig& config);
/// Returns the declaration of the attention of block `layer`.
SublayerSpec multi_head_spec(const Config& config, std::int64_t layer);

/// Causal self-attention with grouped queries, by softmax with rotary positions or by stick-breaking. Tensor ranks
/// share the heads. With model.qkv_bias the projections have biases q_proj/bias, k_proj/bias and v_proj/bias, divided
/// like their rows. With model.o_bias the output projection has o_proj/bias [hidden], of which each tensor rank adds a
/// slice to its part of the output. With model.qk_norm queries and keys are normalised, with weights q_norm/weight and
/// k_norm/weight: either [head_dim], which every rank has, or for all heads, divided like the heads. With model.sinks
/// each head has a sink (ApplySinks), initially normal with model.init_std as in gpt-oss. model.window limits the
/// tokens that a query sees.
class AttentionLayer : public Sublayer {
 public:
  /// Adds its parameters to `units`. `layer`: number of the block; `prefix`: prefix of the tensor names, without a
  /// slash at the end. Throws a usage Error if the heads cannot be divided among the tensor ranks. `mesh` must outlive
  /// this.
  AttentionLayer(const ModelConfig& config, std::int64_t layer, const std::string& prefix, const Mesh& mesh,
                 const SublayerUnits& units);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;
  Parameter* output_matrix() const override { return out_; }

 private:
  std::int64_t layer_;
  AttentionHeads heads_;
  Parameter *qkv_, *out_;
  Parameter* bias_;      // [queries + keys + values]; null without biases
  Parameter* out_bias_;  // a slice of [hidden]; null without a bias
  Range out_columns_;    // the elements of this slice
  Parameter* sinks_;     // [heads]; null without sinks
  std::optional<QkNorm> norm_;
};

}  // namespace lyceum

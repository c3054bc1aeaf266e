#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"
#include "config/positions.h"
#include "kernels/activation_kind.h"

namespace lyceum {

/// The kind of attention: multi_head, which is grouped-query if kv_heads < heads; or experts, see
/// AttentionExpertsConfig.
enum class AttentionKind { multi_head, experts };
constexpr auto names_of(AttentionKind) { return std::array{"mha", "moa"}; }

/// The weights of values in attention, see the kernels AttentionForward and StickBreakingForward.
enum class AttentionWeights { softmax, stick_breaking };
constexpr auto names_of(AttentionWeights) { return std::array{"softmax", "stick_breaking"}; }

/// The elements over which an RMSNorm of queries and keys is taken: each head [Qwen3], or all heads of a token [OLMoE].
enum class QkNormKind { none, head, all };
constexpr auto names_of(QkNormKind) { return std::array{"none", "head", "all"}; }

/// The part of a block that backward recomputes: nothing; results that are cheap to compute; or everything from the
/// block's input.
enum class Recompute { none, selective, full };
constexpr auto names_of(Recompute) { return std::array{"none", "selective", "full"}; }

constexpr auto names_of(Activation) { return std::array{"swiglu", "gelu"}; }

/// [model]: sizes of the model, and its layers without routers.
struct ModelConfig {
  std::int64_t layers = 4, hidden = 256, heads = 4;
  std::int64_t kv_heads = 0;    // 0: heads
  std::int64_t head_dim = 0;    // 0: hidden / heads
  std::int64_t ffn_hidden = 0;  // width of a dense FFN; 0: 8/3 · hidden, rounded to the nearest integer
  std::int64_t vocab = 4096;
  double rope_base = 10000;  // used with softmax; stick-breaking has no positions
  PositionsConfig positions = {};
  double norm_eps = 1e-6;
  double init_std = 0.006;
  bool tie_embeddings = false;
  std::int64_t first_dense_layers = 0;  // number of first blocks whose FFN has no experts
  AttentionKind attention = AttentionKind::multi_head;
  AttentionWeights attention_weights = AttentionWeights::softmax;
  bool qkv_bias = false;
  QkNormKind qk_norm = QkNormKind::none;
  Recompute recompute = Recompute::none;
  Activation ffn = Activation::swiglu;
  /// Number of tokens whose logits are in memory at a time; backward computes them again. 0: all, kept until backward.
  std::int64_t loss_chunk = 0;
};

void declare_keys(ConfigKeys& keys, ModelConfig& model);
void check_model(Findings& findings, const ModelConfig& model);
/// Checks that the model has at most 10^15 parameters, so that numbers of parameters and bytes do not overflow.
void check_size(Findings& findings, const Config& config);
/// Replaces kv_heads, head_dim and ffn_hidden if they are 0.
void derive_model(ModelConfig& model);
void simplify_model(Config& config);

}  // namespace lyceum

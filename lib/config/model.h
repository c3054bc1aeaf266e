#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "config/dropout.h"
#include "config/feature.h"
#include "config/latent_attention.h"
#include "config/positions.h"
#include "kernels/activation_kind.h"

namespace lyceum {

/// The kind of attention: multi_head, which is grouped-query if kv_heads < heads; experts, see AttentionExpertsConfig;
/// or latent, see LatentAttentionConfig.
enum class AttentionKind { multi_head, experts, latent };
constexpr auto names_of(AttentionKind) { return std::array{"mha", "moa", "mla"}; }

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

constexpr auto names_of(Activation) { return std::array{"swiglu", "gelu", "clamped_swiglu"}; }

/// The largest model.layers.
inline constexpr std::int64_t most_layers = 10000;

/// [model]: sizes of the model, and its layers without routers.
struct ModelConfig {
  std::int64_t layers = 4, hidden = 256, heads = 4;
  std::int64_t kv_heads = 0;    // 0: heads
  std::int64_t head_dim = 0;    // 0: hidden / heads, or with latent attention nope_dim + rope_dim
  std::int64_t ffn_hidden = 0;  // width of a dense FFN; 0: 8/3 · hidden, rounded to the nearest integer
  std::int64_t vocab = 4096;
  double rope_base = 10000;  // used with softmax; stick-breaking has no positions
  PositionsConfig positions = {};
  double norm_eps = 1e-6;
  double init_std = 0.006;
  bool tie_embeddings = false;
  std::int64_t first_dense_layers = 0;  // number of first blocks whose FFN has no experts
  AttentionKind attention = AttentionKind::multi_head;
  LatentAttentionConfig latent = {};  // with attention = latent
  AttentionWeights attention_weights = AttentionWeights::softmax;
  bool qkv_bias = false;
  bool o_bias = false;  // a bias of the output projection
  QkNormKind qk_norm = QkNormKind::none;
  std::int64_t window = 0;  // tokens that a query sees at most, its own included; 0: all earlier tokens
  /// 1 for a layer with the window, 0 for one without; repeated over all layers. Empty: every layer has it.
  std::vector<std::int64_t> window_layers = {};
  bool sinks = false;  // one more logit per head in the softmax, see ApplySinks
  Recompute recompute = Recompute::none;
  Activation ffn = Activation::swiglu;
  double swiglu_alpha = 1.702, swiglu_limit = 7;  // constants of clamped_swiglu, see activation_of()
  bool ffn_bias = false;                          // biases of all projections of FFNs and experts
  /// Number of tokens whose logits are in memory at a time; backward computes them again. 0: all, kept until backward.
  std::int64_t loss_chunk = 0;
  double z_loss = 0;  // weight of the mean over targets of (log Σ exp logit)² of the head
  /// Weight of the divergence between the predictions for two copies of each sample [THOR]; 0: there are no copies.
  double consistency = 0;
  DropoutConfig dropout = {};
};

/// Returns the activation of FFNs and experts with its constants.
ActivationFunction activation_of(const ModelConfig& model);
/// Returns the block of the model whose kind and sizes block `layer` has. That is the block itself or, for the block of
/// a module of multi-token prediction (see all_blocks()), the last one.
inline std::int64_t block_like(const ModelConfig& model, std::int64_t layer) {
  return std::min(layer, model.layers - 1);
}
/// Returns the window of the attention of block `layer`; 0 if it has none.
std::int64_t window_of(const ModelConfig& model, std::int64_t layer);
/// Returns the shortest model.window_layers that gives every layer the same window as `layers`, which has one number
/// per layer: 1 with the window, 0 without. Empty if all have it.
std::vector<std::int64_t> shortest_window_layers(const std::vector<std::int64_t>& layers);

void declare_keys(ConfigKeys& keys, ModelConfig& model);
void check_model(Findings& findings, const ModelConfig& model);
/// Checks model.window, model.window_layers and model.sinks.
void check_windows(Findings& findings, const Config& config);
/// Checks model.o_bias, model.ffn_bias and model.ffn against parts of the model that have none of these.
void check_biases(Findings& findings, const Config& config);
/// Checks that the model has at most 10^15 parameters, so that numbers of parameters and bytes do not overflow.
void check_size(Findings& findings, const Config& config);
/// Replaces kv_heads, head_dim and ffn_hidden if they are 0.
void derive_model(ModelConfig& model);
void simplify_model(Config& config);
/// Gives model.window_layers its shortest form; empty without a window.
void simplify_windows(ModelConfig& model);
/// Resets the constants of clamped_swiglu if model.ffn is another activation.
void simplify_activation(ModelConfig& model);

}  // namespace lyceum

#include "config/model.h"

#include <algorithm>
#include <numeric>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"

namespace lyceum {

ActivationFunction activation_of(const ModelConfig& model) {
  return {model.ffn, model.swiglu_alpha, model.swiglu_limit};
}

std::int64_t window_of(const ModelConfig& model, std::int64_t layer) {
  const std::vector<std::int64_t>& layers = model.window_layers;
  if (layers.empty()) return model.window;
  return layers[static_cast<std::size_t>(block_like(model, layer)) % layers.size()] != 0 ? model.window : 0;
}

std::vector<std::int64_t> shortest_window_layers(const std::vector<std::int64_t>& layers) {
  if (std::ranges::all_of(layers, [](std::int64_t layer) { return layer != 0; })) return {};
  std::size_t period = 1;
  // The period is right if each number equals the one a period before it.
  while (!std::equal(layers.begin() + static_cast<std::ptrdiff_t>(period), layers.end(), layers.begin())) ++period;
  return {layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(period)};
}

void declare_keys(ConfigKeys& keys, ModelConfig& model) {
  using enum KeyRole;
  const KeySection key(keys, identity);
  key("model.layers", &model.layers, {.low = 1, .high = most_layers}, "number of transformer blocks",
      {.other_names = {"num_layers", "n_layer", "n_layers", "num_hidden_layers"}});
  key("model.hidden", &model.hidden, {.low = 1}, "width of the residual stream",
      {.other_names = {"hidden_size", "d_model", "n_embd"}});
  key("model.heads", &model.heads, {.low = 1}, "attention heads",
      {.other_names = {"num_attention_heads", "num_heads", "n_head", "n_heads"}});
  key("model.kv_heads", &model.kv_heads, {.low = 0}, "heads of keys and values; 0: model.heads",
      {.other_names = {"num_key_value_heads", "num_query_groups", "n_kv_heads"}});
  key("model.head_dim", &model.head_dim, {.low = 0},
      "width of a head, must be even for rotary positions; 0: hidden / heads, or follows from [latent_attention]",
      {.other_names = {"kv_channels"}});
  key("model.ffn_hidden", &model.ffn_hidden, {.low = 0}, "width of a dense FFN; 0: 8/3 hidden, rounded",
      {.other_names = {"ffn_hidden_size", "intermediate_size"}});
  key("model.vocab", &model.vocab, {.low = 2}, "size of the vocabulary", {.other_names = {"vocab_size"}});
  key("model.rope_base", &model.rope_base, {.low = 1, .high = 1e12}, "base of the rotary angles",
      {.other_names = {"rope_theta", "rotary_base"}});
  declare_position_keys(keys, model.positions);
  key("model.norm_eps", &model.norm_eps, {.low = 1e-20, .high = 1}, "added to the mean square in RMSNorm",
      {.other_names = {"rms_norm_eps", "norm_epsilon", "layernorm_epsilon"}});
  key("model.init_std", &model.init_std, {.low = 0, .high = 10}, "standard deviation of initial weights",
      {.other_names = {"initializer_range", "init_method_std"}});
  key("model.tie_embeddings", &model.tie_embeddings, {}, "use the embedding matrix as output head",
      {.other_names = {"tie_word_embeddings"}});
  key("model.first_dense_layers", &model.first_dense_layers, {.low = 0}, "number of first blocks that keep a dense FFN",
      {.other_names = {"first_k_dense_replace"}});
  key("model.attention", &model.attention,
      "mha: multi-head, or grouped-query with kv_heads; moa: a mixture of attention experts; mla: latent attention");
  key("model.attention_weights", &model.attention_weights,
      "softmax: of the scores, with rotary positions; stick_breaking: each key takes a share of what newer keys left");
  key("model.qkv_bias", &model.qkv_bias, {}, "add biases to the projections to queries, keys and values",
      {.other_names = {"add_qkv_bias", "attention_bias"}});
  key("model.o_bias", &model.o_bias, {}, "add a bias to the output projection of attention",
      {.other_names = {"attention_out_bias", "add_o_bias"}});
  key("model.qk_norm", &model.qk_norm,
      "RMSNorm of queries and keys before rotary positions: per head, or over all heads of a token",
      {.other_names = {"qk_layernorm", "use_qk_norm"}});
  key("model.window", &model.window, {.low = 0},
      "tokens that a token attends to at most, itself included (sliding window); 0: all earlier tokens",
      {.other_names = {"sliding_window", "window_size"}});
  key("model.window_layers", &model.window_layers, {.low = 0, .high = 1},
      "layers with the window: 1 with, 0 without, repeated over all layers, such as 1,0; empty: all layers",
      {.other_names = {"layer_types", "window_pattern"}});
  key("model.sinks", &model.sinks, {}, "add a learned logit per head to the softmax of attention, without a value",
      {.other_names = {"attention_sinks", "sink_attention"}});
  key("model.ffn", &model.ffn,
      "FFNs of three matrices (swiglu, or clamped_swiglu with limited inputs, as in gpt-oss) or of two (gelu)",
      {.other_names = {"hidden_act"}});
  key("model.swiglu_alpha", &model.swiglu_alpha, {.low = 0, .high = 1e3, .low_open = true},
      "with clamped_swiglu: factor of the gate in its sigmoid");
  key("model.swiglu_limit", &model.swiglu_limit, {.low = 0, .high = 1e6, .low_open = true},
      "with clamped_swiglu: largest gate, and largest absolute value of the other input");
  key("model.ffn_bias", &model.ffn_bias, {}, "add biases to the projections of FFNs and experts",
      {.other_names = {"mlp_bias", "add_bias_linear"}});
  key("model.z_loss", &model.z_loss, loss_weight, "weight of the squared log-sum-exp of the head's logits",
      {.role = tuning, .other_names = {"z_loss_weight", "z_loss_multiplier"}});
  key("model.consistency", &model.consistency, loss_weight,
      "weight of the divergence between the predictions for two copies of each sample, for THOR; 0: no copies",
      {.role = tuning});
  declare_dropout_keys(keys, model.dropout);
  key("model.recompute", &model.recompute,
      "in backward, selective: recompute what is cheap; full: recompute all of a block from its input",
      {.role = operation,
       .other_names = {"activation_checkpointing", "gradient_checkpointing", "recompute_granularity"}});
  key("model.loss_chunk", &model.loss_chunk, {.low = 0},
      "tokens whose logits are in memory at a time, recomputed in backward; 0: all tokens, not recomputed",
      {.role = operation});
  declare_latent_keys(keys, model.latent);
}

void check_model(Findings& findings, const ModelConfig& model) {
  findings.unless(divides(model.kv_heads, model.heads),
                  "model.kv_heads = {} does not divide model.heads = {}: each must serve the same number of heads",
                  model.kv_heads, model.heads);
  const bool latent = model.attention == AttentionKind::latent;
  const bool derived = model.head_dim == 0 && !latent;
  const bool splits = divides(model.heads, model.hidden);
  findings.unless(!derived || splits,
                  "model.heads = {} does not divide model.hidden = {}: change one, or set model.head_dim", model.heads,
                  model.hidden);
  std::int64_t head_dim = derived && splits && model.heads > 0 ? model.hidden / model.heads : model.head_dim;
  if (latent) head_dim = 0;  // check_latent_attention() checks its columns with positions
  check_positions(findings, model, head_dim);
  check_latent_attention(findings, model);
  const bool mixture = model.attention == AttentionKind::experts;
  findings.unless(
      !mixture || !model.qkv_bias,
      "model.qkv_bias = true with model.attention = moa, whose experts have no biases: set one or the other");
  findings.unless(!mixture || model.qk_norm == QkNormKind::none,
                  "model.qk_norm = {} with model.attention = moa, whose experts have no norms: set one or the other",
                  name_of(model.qk_norm));
  findings.unless(model.first_dense_layers <= model.layers,
                  "model.first_dense_layers = {} is more than model.layers = {}", model.first_dense_layers,
                  model.layers);
}

void check_windows(Findings& findings, const Config& config) {
  const ModelConfig& model = config.model;
  const std::int64_t longest = longest_seq_len(config);  // stages with shorter sequences have the window for later ones
  const bool sticks = model.attention_weights == AttentionWeights::stick_breaking;
  findings.unless(!sticks || model.window <= 0,
                  "model.window = {} with model.attention_weights = stick_breaking: set model.window = 0, or "
                  "model.attention_weights = softmax",
                  model.window);
  findings.unless(model.window <= longest || longest <= 0,
                  "model.window = {} is more than batch.seq_len = {}: set model.window = 0, which is the same for such "
                  "sequences",
                  model.window, longest);
  const std::vector<std::int64_t>& layers = model.window_layers;
  findings.unless(layers.empty() || model.window != 0,
                  "model.window_layers without a window: set model.window, or remove model.window_layers");
  findings.unless(std::ssize(layers) <= model.layers || model.layers <= 0,
                  "model.window_layers has {} numbers for model.layers = {}: give at most one per layer", layers.size(),
                  model.layers);
  findings.unless(layers.empty() || std::ranges::any_of(layers, [](std::int64_t layer) { return layer != 0; }),
                  "model.window_layers has no 1, so no layer has the window: set model.window = 0 instead");
  findings.unless(!model.sinks || !sticks,
                  "model.sinks = true with model.attention_weights = stick_breaking, which is not a softmax: set "
                  "model.sinks = false");
  findings.unless(!model.sinks || model.attention != AttentionKind::experts,
                  "model.sinks = true with model.attention = moa, whose experts have none: set one or the other");
  findings.unless(!model.sinks || config.sub_dimensions.attention <= 0,
                  "model.sinks = true with sub_dimensions.attention = {}: set one or the other",
                  config.sub_dimensions.attention);
}

void check_biases(Findings& findings, const Config& config) {
  const ModelConfig& model = config.model;
  const SubDimensionsConfig& parts = config.sub_dimensions;
  findings.unless(!model.o_bias || model.attention != AttentionKind::experts,
                  "model.o_bias = true with model.attention = moa, whose experts have no biases: set one or the other");
  findings.unless(!model.o_bias || parts.attention <= 0,
                  "model.o_bias = true with sub_dimensions.attention = {}: set one or the other", parts.attention);
  findings.unless(!model.ffn_bias || parts.ffn <= 0,
                  "model.ffn_bias = true with sub_dimensions.ffn = {}: set one or the other", parts.ffn);
}

void check_size(Findings& findings, const Config& config) {
  constexpr double most = 1e15;
  const ModelConfig& model = config.model;
  const MoeConfig& moe = config.moe;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const LatentAttentionConfig& latent = model.latent;
  double head_dim = model.head_dim > 0 ? number(model.head_dim) : number(model.hidden) / number(model.heads);
  head_dim = std::max(head_dim, number(latent.nope_dim) + number(latent.rope_dim) + number(latent.value_dim));
  double width = std::max(number(model.ffn_hidden), 8.0 / 3 * number(model.hidden));
  for (const ExpertNumber& layer : expert_numbers(config)) {
    width = std::max(width, (number(layer.experts) + number(moe.shared_experts)) * (number(moe.expert_hidden) + 1));
  }
  width = std::max(width, std::accumulate(moe.expert_sizes.begin(), moe.expert_sizes.end(), 0.0));
  const double attention = 4 * number(model.heads) * head_dim * (1 + number(most_attention_experts(config)));
  const double ranks = number(latent.query_rank) + number(latent.key_value_rank) + number(latent.rope_dim);
  const double latents = ranks * (number(model.hidden) + number(model.heads) * head_dim);
  const double blocks = number(all_blocks(config));
  const double size =
      number(model.hidden) * (2 * number(model.vocab) + blocks * (attention + 3 * width)) + blocks * latents;
  findings.unless(!(size > most),
                  "the model has about {:.2g} parameters: at most {:.0g} are supported, lower "
                  "model.hidden, model.layers, model.vocab or other widths",
                  size, most);
}

void derive_model(ModelConfig& model) {
  derive_latent_attention(model);
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  const bool splits = model.heads > 0 && model.hidden % model.heads == 0;
  if (model.head_dim == 0 && splits) model.head_dim = model.hidden / model.heads;
  if (model.ffn_hidden == 0)
    model.ffn_hidden = (16 * model.hidden + 3) / 6;  // 8/3 · hidden, rounded to the nearest integer: 1280 → 3413
}

void simplify_model(Config& config) {
  ModelConfig& model = config.model;
  simplify_positions(model.positions);
  if (model.attention != AttentionKind::latent) model.latent = {};
  const bool sparse = config.moe.experts > 0 || config.moe.shared_experts > 0;
  if (!sparse) model.first_dense_layers = 0;
  if (sparse && model.first_dense_layers == 0) model.ffn_hidden = 0;
  simplify_windows(model);
  simplify_activation(model);
  simplify_dropout(model.dropout);
}

void simplify_activation(ModelConfig& model) {
  if (model.ffn == Activation::clamped_swiglu) return;
  const ModelConfig defaults;
  model.swiglu_alpha = defaults.swiglu_alpha;
  model.swiglu_limit = defaults.swiglu_limit;
}

void simplify_windows(ModelConfig& model) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) layers.push_back(window_of(model, layer) > 0 ? 1 : 0);
  model.window_layers = model.window > 0 ? shortest_window_layers(layers) : std::vector<std::int64_t>();
}

}  // namespace lyceum

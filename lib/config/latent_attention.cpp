#include "config/latent_attention.h"

#include <cmath>
#include <utility>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"

namespace lyceum {

namespace {

bool has_latents(const ModelConfig& model) { return model.attention == AttentionKind::latent; }

}  // namespace

double latent_score_scale(const ModelConfig& model) {
  const double scale = 1 / std::sqrt(static_cast<double>(model.latent.head_dim()));
  const PositionsConfig& positions = model.positions;
  if (positions.scaling != RopeScalingKind::yarn || !(positions.mscale_all_dim > 0)) return scale;
  const double magnitude = rope_magnitude(positions, positions.mscale_all_dim);
  return scale * magnitude * magnitude;
}

void declare_latent_keys(ConfigKeys& keys, LatentAttentionConfig& latent) {
  const KeySection key(keys, KeyRole::identity);
  key("latent_attention.query_rank", &latent.query_rank, {.low = 0},
      "with model.attention = mla: width of the latent of queries; 0: queries are not compressed",
      {.other_names = {"q_lora_rank"}});
  key("latent_attention.key_value_rank", &latent.key_value_rank, {.low = 0}, "width of the latent of keys and values",
      {.other_names = {"kv_lora_rank"}});
  key("latent_attention.nope_dim", &latent.nope_dim, {.low = 0},
      "columns of a head of queries and keys without positions", {.other_names = {"qk_nope_head_dim", "qk_head_dim"}});
  key("latent_attention.rope_dim", &latent.rope_dim, {.low = 0},
      "columns of a head with rotary positions, must be even; all heads share those of the key",
      {.other_names = {"qk_rope_head_dim", "qk_pos_emb_head_dim"}});
  key("latent_attention.value_dim", &latent.value_dim, {.low = 0}, "columns of a head of values",
      {.other_names = {"v_head_dim"}});
  key("latent_attention.norm_eps", &latent.norm_eps, {.low = 1e-20, .high = 1},
      "added to the mean square in the RMSNorm of latents");
}

void check_latent_attention(Findings& findings, const ModelConfig& model) {
  const LatentAttentionConfig& latent = model.latent;
  const bool used = has_latents(model);
  for (const auto& [key, value] : {std::pair{"latent_attention.key_value_rank", latent.key_value_rank},
                                   std::pair{"latent_attention.nope_dim", latent.nope_dim},
                                   std::pair{"latent_attention.rope_dim", latent.rope_dim},
                                   std::pair{"latent_attention.value_dim", latent.value_dim}}) {
    findings.unless(!used || value != 0, "model.attention = mla without {0}: set {0}", key);
    if (!used) findings.unless_zero(key, value, "without model.attention = mla", ", or model.attention = mla");
  }
  if (!used) {
    findings.unless_zero("latent_attention.query_rank", latent.query_rank, "without model.attention = mla",
                         ", or model.attention = mla");
    return;
  }
  findings.unless(latent.rope_dim <= 0 || divides(2, latent.rope_dim),
                  "latent_attention.rope_dim = {} is odd: RoPE rotates pairs, set an even width", latent.rope_dim);
  findings.unless(model.kv_heads <= 0 || model.kv_heads == model.heads,
                  "model.kv_heads = {} with model.attention = mla, which has a key for each of model.heads = {}: set "
                  "model.kv_heads = 0",
                  model.kv_heads, model.heads);
  const std::int64_t width = latent.head_dim();
  findings.unless(model.head_dim <= 0 || model.head_dim == width,
                  "model.head_dim = {} with model.attention = mla, whose heads have latent_attention.nope_dim + "
                  "rope_dim = {} columns: set model.head_dim = 0",
                  model.head_dim, width);
  findings.unless(model.positions.rotary_fraction == 1,
                  "model.rotary_fraction = {} with model.attention = mla, which rotates latent_attention.rope_dim "
                  "columns: remove model.rotary_fraction",
                  model.positions.rotary_fraction);
  findings.unless(model.attention_weights == AttentionWeights::softmax,
                  "model.attention_weights = {} with model.attention = mla: set model.attention_weights = softmax",
                  name_of(model.attention_weights));
  findings.unless(!model.qkv_bias,
                  "model.qkv_bias = true with model.attention = mla, whose projections have no biases: set one or the "
                  "other");
  findings.unless(!model.o_bias,
                  "model.o_bias = true with model.attention = mla, whose projections have no biases: set one or the "
                  "other");
  findings.unless(model.qk_norm == QkNormKind::none,
                  "model.qk_norm = {} with model.attention = mla, which has norms of its latents: set one or the other",
                  name_of(model.qk_norm));
  findings.unless(!model.sinks, "model.sinks = true with model.attention = mla: set one or the other");
}

void derive_latent_attention(ModelConfig& model) {
  if (!has_latents(model)) return;
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0) model.head_dim = model.latent.head_dim();
}

}  // namespace lyceum

#include "model/attention/latent.h"

#include <vector>

#include "autograd/linear.h"
#include "autograd/rms_norm.h"
#include "core/error.h"
#include "model/attention/heads.h"
#include "model/attention/logits.h"

namespace lyceum {

namespace {

LatentHeads latent_heads_of(const ModelConfig& config) {
  const LatentAttentionConfig& latent = config.latent;
  return {
      .heads = config.heads, .nope_dim = latent.nope_dim, .rope_dim = latent.rope_dim, .value_dim = latent.value_dim};
}

std::vector<SublayerTensor> latent_tensors_of(const ModelConfig& config) {
  const LatentHeads heads = latent_heads_of(config);
  const LatentAttentionConfig& latent = config.latent;
  const std::int64_t queries = heads.heads * heads.head_dim(), rank = latent.key_value_rank;
  const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t cols, Cut cut) {
    return SublayerTensor{name, {rows, cols}, config.init_std, TensorPart::attention, cut};
  };
  const auto norm = [](const char* name, std::int64_t width) {
    return SublayerTensor{name, {width}, {}, TensorPart::norms};
  };
  std::vector<SublayerTensor> tensors;
  if (latent.query_rank > 0) {
    tensors.push_back(matrix("q_a_proj/weight", latent.query_rank, config.hidden, Cut::none));
    tensors.push_back(norm("q_a_layernorm/weight", latent.query_rank));
    tensors.push_back(matrix("q_b_proj/weight", queries, latent.query_rank, Cut::rows));
  } else {
    tensors.push_back(matrix("q_proj/weight", queries, config.hidden, Cut::rows));
  }
  tensors.push_back(matrix("kv_a_proj_with_mqa/weight", rank + heads.rope_dim, config.hidden, Cut::none));
  tensors.push_back(norm("kv_a_layernorm/weight", rank));
  tensors.push_back(matrix("kv_b_proj/weight", heads.heads * heads.up_dim(), rank, Cut::rows));
  tensors.push_back(matrix("o_proj/weight", config.hidden, heads.heads * heads.value_dim, Cut::columns));
  return tensors;
}

/// Returns the costs of attention to keys and values of all heads, as in training. A cache has the latent and the
/// shared key, whole on each tensor rank.
AttentionCosts latent_costs_of(const ModelConfig& config, std::int64_t layer) {
  const LatentHeads heads = latent_heads_of(config);
  const LatentAttentionConfig& latent = config.latent;
  return {.score_width = heads.heads * heads.head_dim(),
          .value_width = heads.heads * heads.value_dim,
          .window = window_of(config, layer),
          .cache_width = latent.key_value_rank + heads.rope_dim,
          .cache_is_cut = false,
          .position_width = heads.rope_dim,
          .repeated_parameters =
              heads.heads * (heads.up_dim() * latent.key_value_rank + heads.head_dim() * latent.query_rank)};
}

}  // namespace

SublayerSpec latent_attention_spec(const Config& config, std::int64_t layer) {
  return {.id = {layer, Site::attention},
          .tensors = latent_tensors_of(config.model),
          .costs = latent_costs_of(config.model, layer),
          .make = [](const Config& of, const SublayerSpec& spec,
                     const SublayerContext& context) -> std::unique_ptr<Sublayer> {
            return std::make_unique<LatentAttentionLayer>(of.model, spec.id.layer, spec.prefix(), context.mesh,
                                                          context.units);
          }};
}

LatentAttentionLayer::LatentAttentionLayer(const ModelConfig& config, std::int64_t layer, const std::string& prefix,
                                           const Mesh& mesh, const SublayerUnits& units)
    : layer_(layer),
      heads_(latent_heads_of(config)),
      window_(window_of(config, layer)),
      scale_(latent_score_scale(config)),
      eps_(config.latent.norm_eps),
      rope_layout_(config.positions.layout) {
  require_usage(heads_.heads % mesh.tensor.size() == 0,
                "model.heads = {} cannot be divided among parallel.tensor = {} ranks", heads_.heads,
                mesh.tensor.size());
  heads_.heads /= mesh.tensor.size();
  const SublayerParameters parameters(latent_tensors_of(config), prefix, mesh, units);
  const bool compressed = config.latent.query_rank > 0;
  if (compressed) {
    q_down_ = &parameters.at("q_a_proj/weight");
    q_norm_ = &parameters.at("q_a_layernorm/weight");
  }
  q_up_ = &parameters.at(compressed ? "q_b_proj/weight" : "q_proj/weight");
  kv_down_ = &parameters.at("kv_a_proj_with_mqa/weight");
  kv_norm_ = &parameters.at("kv_a_layernorm/weight");
  kv_up_ = &parameters.at("kv_b_proj/weight");
  out_ = &parameters.at("o_proj/weight");
  const std::int64_t first_head = layer * heads_.heads, nope = heads_.nope_dim;
  // The key with positions belongs to all heads and is not scaled, so its part of the queries is multiplied by γ.
  scale_heads(*q_up_, 0, first_head, {.rows = heads_.head_dim(), .split = nope, .rest = HeadScaling::Rest::squared});
  scale_heads(*kv_up_, 0, first_head, {.rows = heads_.up_dim(), .split = nope});
}

void LatentAttentionLayer::set_stage(const ModelConfig& config) { scale_ = latent_score_scale(config); }

LatentAttention LatentAttentionLayer::attention(const Pass& pass) const {
  return {.heads = heads_,
          .seq_len = pass.layout.seq_len(),
          .scale = scale_,
          .rope_table = pass.rope,
          .rope_layout = rope_layout_,
          .first_keys = pass.batch.first_keys,
          .window = window_,
          .largest_logits = logits_of_block(pass.batch.attention_logits, layer_)};
}

LatentAttentionLayer::Queries LatentAttentionLayer::queries(Tape& tape, const TokenLayout& layout, const Variable& x,
                                                            const Variable& own) const {
  if (!q_down_) {
    const Variable all = layout.to_matrix(tape, x), q = tape.apply(Linear{q_up_}, all);
    layout.release_matrix(tape, all, x);
    return {q, all};
  }
  const Variable projected = tape.apply(Linear{q_down_}, own);
  const Variable latent = layout.gather_own_tokens(tape, tape.apply(RmsNorm{q_norm_, eps_}, projected));
  return {tape.apply(Linear{q_up_}, latent), latent};
}

Sublayer::Result LatentAttentionLayer::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const Variable own = layout.to_own_tokens(tape, x);
  const auto [q, from] = queries(tape, layout, x, own);
  const auto [own_latent, own_key] = tape.apply(SplitLatent{kv_norm_, eps_}, tape.apply(Linear{kv_down_}, own));
  const Variable latent = layout.gather_own_tokens(tape, own_latent), key = layout.gather_own_tokens(tape, own_key);
  if (pass.cache) {
    const Variable attended = tape.apply(CachedLatentAttention{attention(pass), kv_up_, pass.cache}, q, latent, key);
    return {layout.from_matrix(tape, tape.apply(Linear{out_}, attended))};
  }
  const Variable kv = tape.apply(Linear{kv_up_}, latent);
  const LatentAttention op = attention(pass);
  const Variable attended = tape.apply(op, q, kv, key);
  const Variable out = tape.apply(Linear{out_}, attended);
  // Backward computes again what attention read and made, unless that takes the product of a whole matrix with x.
  LatentAttention again = op;
  again.rotated = !q_down_;
  again.largest_logits = {};  // measured already
  tape.release(attended, again, q, kv, key);
  tape.release(kv, Linear{kv_up_}, latent);
  if (q_down_) tape.release(q, Linear{q_up_}, from);
  return {layout.from_matrix(tape, out)};
}

}  // namespace lyceum

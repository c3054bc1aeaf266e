#include "model/attention/multi_head.h"

#include "autograd/linear.h"
#include "model/attention/attend.h"
#include "model/attention/logits.h"

namespace lyceum {

namespace {

std::vector<SublayerTensor> tensors_of(const ModelConfig& config) {
  const AttentionHeads heads = heads_of(config, 0);  // all layers have the same heads
  std::vector<SublayerTensor> tensors = attention_matrices(config);
  const auto add_bias = [&](const char* name, std::int64_t rows) {
    tensors.push_back({name, {rows}, 0.0, TensorPart::attention, Cut::rows, "qkv_bias"});
  };
  if (config.qkv_bias) {
    add_bias("q_proj/bias", heads.queries());
    add_bias("k_proj/bias", heads.keys());
    add_bias("v_proj/bias", heads.values());
  }
  if (config.o_bias) {
    tensors.push_back({"o_proj/bias", {config.hidden}, 0.0, TensorPart::attention, Cut::rows});
  }
  const auto add_norm = [&](const char* name, std::int64_t width) {
    const bool by_head = config.qk_norm == QkNormKind::head;
    const Shape shape{by_head ? heads.head_dim : width};
    const Cut cut = by_head ? Cut::none : Cut::rows;
    tensors.push_back({name, shape, {}, TensorPart::norms, cut});
  };
  if (config.qk_norm != QkNormKind::none) {
    add_norm("q_norm/weight", heads.queries());
    add_norm("k_norm/weight", heads.keys());
  }
  if (config.sinks) {
    tensors.push_back({"sinks", {heads.heads}, config.init_std, TensorPart::attention, Cut::rows});
  }
  return tensors;
}

}  // namespace

std::vector<SublayerTensor> attention_matrices(const ModelConfig& config) {
  const AttentionHeads heads = heads_of(config, 0);
  return {projection_of(config, "q_proj/weight", heads.queries(), "qkv"),
          projection_of(config, "k_proj/weight", heads.keys(), "qkv"),
          projection_of(config, "v_proj/weight", heads.values(), "qkv"), output_of(config, heads)};
}

SublayerSpec multi_head_spec(const Config& config, std::int64_t layer) {
  return {.id = {layer, Site::attention},
          .tensors = tensors_of(config.model),
          .costs = costs_of(heads_of(config.model, layer)),
          .make = [](const Config& of, const SublayerSpec& spec,
                     const SublayerContext& context) -> std::unique_ptr<Sublayer> {
            return std::make_unique<AttentionLayer>(of.model, spec.id.layer, spec.prefix(), context.mesh,
                                                    context.units);
          }};
}

AttentionLayer::AttentionLayer(const ModelConfig& config, std::int64_t layer, const std::string& prefix,
                               const Mesh& mesh, const SublayerUnits& units)
    : layer_(layer), heads_(share_of(heads_of(config, layer), mesh.tensor)) {
  const SublayerParameters parameters(tensors_of(config), prefix, mesh, units);
  qkv_ = &parameters.at("q_proj/weight");
  out_ = &parameters.at("o_proj/weight");
  bias_ = parameters.find("q_proj/bias");
  out_bias_ = parameters.find("o_proj/bias");
  if (out_bias_) out_columns_ = elements_of(*out_bias_);
  sinks_ = parameters.find("sinks");
  scale_query_and_key_heads(*qkv_, layer, heads_);
  if (bias_) scale_query_and_key_heads(*bias_, layer, heads_);
  if (config.qk_norm == QkNormKind::none) return;
  norm_ = QkNorm{.q = &parameters.at("q_norm/weight"),
                 .k = &parameters.at("k_norm/weight"),
                 .shape = {.heads = heads_.heads,
                           .kv_heads = heads_.kv_heads,
                           .head_dim = heads_.head_dim,
                           .by_head = config.qk_norm == QkNormKind::head,
                           .ranks = mesh.tensor.size()},
                 .eps = config.norm_eps,
                 .group = &mesh.tensor};
}

Sublayer::Result AttentionLayer::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const Variable all = layout.to_matrix(tape, x), qkv = tape.apply(Linear{qkv_, bias_}, all);
  layout.release_matrix(tape, all, x);
  const Variable normed = norm_ ? tape.apply(*norm_, qkv) : qkv;
  const Attended attended = attend(tape, pass, heads_, normed,
                                   {.released = norm_.has_value(),
                                    .sinks = sinks_,
                                    .largest_logits = logits_of_block(pass.batch.attention_logits, layer_)});
  const Variable out = tape.apply(Linear{out_, out_bias_, out_columns_}, attended.y);
  attended.release(tape);
  if (norm_) tape.release(normed, *norm_, qkv);
  return {layout.from_matrix(tape, out)};
}

}  // namespace lyceum

#include "model/attention/multi_head.h"

#include "autograd/linear.h"
#include "model/attention/attend.h"

namespace lyceum {

namespace {

SublayerTensor bias_of(std::string name, std::int64_t rows) {
  return {.name = std::move(name),
          .shape = {rows},
          .initial = 0.0,
          .decay = false,
          .part = TensorPart::attention,
          .cut = Cut::rows,
          .stack = "qkv_bias"};
}

/// The weight of a norm of each head, or of all heads together, of which there are `width` elements.
SublayerTensor norm_of(const ModelConfig& config, std::string name, std::int64_t width) {
  const bool by_head = config.qk_norm == QkNormKind::head;
  return {.name = std::move(name),
          .shape = {by_head ? config.head_dim : width},
          .initial = {},
          .decay = false,
          .part = TensorPart::norms,
          .unit = by_head ? TensorUnit::replicated : TensorUnit::dense,
          .cut = by_head ? Cut::none : Cut::rows};
}

std::vector<SublayerTensor> tensors_of(const ModelConfig& config) {
  const AttentionHeads heads = heads_of(config);
  std::vector<SublayerTensor> tensors = attention_matrices(config);
  if (config.qkv_bias) {
    tensors.push_back(bias_of("q_proj/bias", heads.queries()));
    tensors.push_back(bias_of("k_proj/bias", heads.keys()));
    tensors.push_back(bias_of("v_proj/bias", heads.values()));
  }
  if (config.qk_norm != QkNormKind::none) {
    tensors.push_back(norm_of(config, "q_norm/weight", heads.queries()));
    tensors.push_back(norm_of(config, "k_norm/weight", heads.keys()));
  }
  return tensors;
}

}  // namespace

std::vector<SublayerTensor> attention_matrices(const ModelConfig& config) {
  const AttentionHeads heads = heads_of(config);
  return {projection_of(config, "q_proj/weight", heads.queries(), "qkv"),
          projection_of(config, "k_proj/weight", heads.keys(), "qkv"),
          projection_of(config, "v_proj/weight", heads.values(), "qkv"), output_of(config, heads)};
}

SublayerSpec multi_head_spec(const Config& config, std::int64_t layer) {
  return {
      .id = {layer, Site::attention},
      .tensors = tensors_of(config.model),
      .costs = costs_of(heads_of(config.model)),
      .make = [](const Config& of, const SublayerSpec& spec, const SublayerPlace& place) -> std::unique_ptr<Sublayer> {
        return std::make_unique<AttentionLayer>(of.model, spec.prefix(), place.mesh, place.units);
      }};
}

AttentionLayer::AttentionLayer(const ModelConfig& config, const std::string& prefix, const Mesh& mesh,
                               const SublayerUnits& units)
    : heads_(share_of(heads_of(config), mesh.tensor)) {
  const SublayerParameters parameters(tensors_of(config), prefix, mesh, units);
  qkv_ = &parameters.at("q_proj/weight");
  out_ = &parameters.at("o_proj/weight");
  bias_ = parameters.find("q_proj/bias");
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
  const Attended attended = attend(tape, pass, heads_, normed, norm_.has_value());
  const Variable out = tape.apply(Linear{out_}, attended.y);
  attended.release(tape);
  if (norm_) tape.release(normed, *norm_, qkv);
  return {layout.from_matrix(tape, out)};
}

}  // namespace lyceum

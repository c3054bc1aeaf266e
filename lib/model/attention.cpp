#include <utility>

#include "autograd/linear.h"
#include "model/layers.h"

namespace lyceum {

namespace {

/// Of a tensor whose rows are those of heads, this rank's `own` ones.
RowsOf rows_of_heads(std::string name, std::int64_t own, const ProcessGroup& tensor) {
  return {std::move(name), own * tensor.size(), {own * tensor.rank(), own}};
}

/// q_proj/KIND, k_proj/KIND and v_proj/KIND under `prefix`.
std::vector<RowsOf> projections(const std::string& prefix, const char* kind, const AttentionHeads& heads,
                                const ProcessGroup& tensor) {
  const auto rows = [&](const char* name, std::int64_t own) {
    return rows_of_heads(prefix + name + kind, own, tensor);
  };
  return {rows("/q_proj/", heads.queries()), rows("/k_proj/", heads.keys()), rows("/v_proj/", heads.keys())};
}

QkNorm add_qk_norm(const AttentionLayer::Units& units, const std::string& prefix, const ModelConfig& config,
                   const AttentionHeads& heads, const ProcessGroup& tensor) {
  const bool by_head = config.qk_norm == QkNormKind::head;
  const auto weight = [&](const std::string& name, std::int64_t own) {
    return by_head ? &units.replicated.add(whole_parameter(name, {heads.head_dim}, {}, false))
                   : &units.dense.add(stacked_vector(name, {rows_of_heads(name, own, tensor)}, {}));
  };
  return {.q = weight(prefix + "/q_norm/weight", heads.queries()),
          .k = weight(prefix + "/k_norm/weight", heads.keys()),
          .shape = {.heads = heads.heads,
                    .kv_heads = heads.kv_heads,
                    .head_dim = heads.head_dim,
                    .by_head = by_head,
                    .ranks = tensor.size()},
          .eps = config.norm_eps,
          .group = &tensor};
}

}  // namespace

AttentionMatrices add_attention(ParameterUnit& unit, const std::string& prefix, const ModelConfig& config,
                                const AttentionHeads& heads, const ProcessGroup& tensor) {
  const std::int64_t queries = heads.queries();
  return {.qkv = &unit.add(stacked_parameter(prefix + "/qkv", projections(prefix, "weight", heads, tensor),
                                             config.hidden, config.init_std)),
          .out = &unit.add(sharded_parameter(prefix + "/o_proj/weight", {config.hidden, queries * tensor.size()}, 1,
                                             {queries * tensor.rank(), queries}, config.init_std))};
}

AttentionLayer::AttentionLayer(const ModelConfig& config, const std::string& prefix, const ProcessGroup& tensor,
                               const Units& units)
    : heads_(heads_of(config, tensor)), matrices_(add_attention(units.dense, prefix, config, heads_, tensor)) {
  if (config.qkv_bias) {
    bias_ = &units.dense.add(stacked_vector(prefix + "/qkv_bias", projections(prefix, "bias", heads_, tensor), 0.0));
  }
  if (config.qk_norm != QkNormKind::none) norm_ = add_qk_norm(units, prefix, config, heads_, tensor);
}

Sublayer::Result AttentionLayer::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const Variable all = layout.to_matrix(tape, x), qkv = tape.apply(Linear{matrices_.qkv, bias_}, all);
  layout.release_matrix(tape, all, x);
  const Variable normed = norm_ ? tape.apply(*norm_, qkv) : qkv;
  const Attended attended = attend(tape, pass, heads_, normed, norm_.has_value());
  const Variable out = tape.apply(Linear{matrices_.out}, attended.y);
  attended.release(tape);
  if (norm_) tape.release(normed, *norm_, qkv);
  return {layout.from_matrix(tape, out)};
}

}  // namespace lyceum

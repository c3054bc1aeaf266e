#include "model/attention/heads.h"

#include <utility>

#include "core/error.h"

namespace lyceum {

AttentionHeads heads_of(const ModelConfig& config, std::int64_t layer) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .value_dim = config.head_dim,
          .weights = config.attention_weights,
          .rotary_columns = rotary_columns(config),
          .rope_layout = config.positions.layout,
          .window = window_of(config, layer)};
}

AttentionHeads share_of(const AttentionHeads& heads, const ProcessGroup& tensor) {
  AttentionHeads own = heads;
  own.heads /= tensor.size();
  own.kv_heads /= tensor.size();
  require_usage(own.heads * tensor.size() == heads.heads && own.kv_heads * tensor.size() == heads.kv_heads,
                "model.heads = {} and model.kv_heads = {} cannot be divided among parallel.tensor = {} ranks",
                heads.heads, heads.kv_heads, tensor.size());
  return own;
}

void scale_heads(Parameter& parameter, std::size_t slice, std::int64_t first_head, const HeadRows& head) {
  const ParameterSlice& all = parameter.slices.at(slice);
  const Shape shape = all.in_memory();
  const std::int64_t cols = shape.rank() > 1 ? shape[1] : 1;
  parameter.heads.push_back({.range = {all.first, shape.size()},
                             .scaling = {.begin = all.first,
                                         .period = head.rows * cols,
                                         .split = head.split * cols,
                                         .first_head = static_cast<std::int32_t>(first_head),
                                         .rest = head.rest}});
}

void scale_query_and_key_heads(Parameter& qkv, std::int64_t layer, const AttentionHeads& own) {
  const std::int64_t queries = own.queries() / own.kv_heads, first_head = layer * own.kv_heads;
  scale_heads(qkv, 0, first_head, {.rows = queries, .split = queries});
  scale_heads(qkv, 1, first_head, {.rows = own.head_dim, .split = own.head_dim});
}

AttentionCosts costs_of(const AttentionHeads& heads) {
  return {.score_width = heads.queries(),
          .value_width = heads.results(),
          .window = heads.window,
          .cache_width = heads.keys() + heads.values(),
          .position_width = heads.rotary_columns};
}

SublayerTensor projection_of(const ModelConfig& config, std::string name, std::int64_t rows, std::string stack) {
  return {std::move(name), {rows, config.hidden}, config.init_std, TensorPart::attention, Cut::rows, std::move(stack)};
}

SublayerTensor output_of(const ModelConfig& config, const AttentionHeads& heads) {
  return {"o_proj/weight", {config.hidden, heads.results()}, config.init_std, TensorPart::attention, Cut::columns};
}

}  // namespace lyceum

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

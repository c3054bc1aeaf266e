#include "model/sublayer_spec.h"

#include <algorithm>

#include "model/attention/experts.h"
#include "model/attention/latent.h"
#include "model/attention/multi_head.h"
#include "model/ffn/dense.h"
#include "model/ffn/experts.h"
#include "model/sub_dimensions.h"

namespace lyceum {

bool SublayerSpec::has(TensorUnit unit) const {
  return std::ranges::find(tensors, unit, &SublayerTensor::unit) != tensors.end();
}

namespace {

SublayerSpec attention_of_kind(const Config& config, std::int64_t layer) {
  if (const std::optional<Mixture> experts = attention_experts(config, layer)) {
    return attention_experts_spec(config, *experts);
  }
  if (config.model.attention == AttentionKind::latent) return latent_attention_spec(config, layer);
  const std::optional<Mixture> sub_dimensions = sub_dimensions_of(config, {layer, Site::attention});
  return sub_dimensions ? sub_dimension_attention_spec(config, *sub_dimensions) : multi_head_spec(config, layer);
}

SublayerSpec ffn_of_kind(const Config& config, std::int64_t layer) {
  if (const std::optional<Mixture> sub_dimensions = sub_dimensions_of(config, {layer, Site::ffn})) {
    return sub_dimension_ffn_spec(config, *sub_dimensions);
  }
  const std::optional<Mixture> experts = routed_experts(config, layer);
  return experts ? ffn_experts_spec(config, *experts) : dense_ffn_spec(config, layer);
}

}  // namespace

SublayerSpec attention_spec(const Config& config, std::int64_t layer) {
  SublayerSpec spec = attention_of_kind(config, layer);
  spec.block = block_prefix(config.model, layer);
  return spec;
}

SublayerSpec ffn_spec(const Config& config, std::int64_t layer) {
  SublayerSpec spec = ffn_of_kind(config, layer);
  spec.block = block_prefix(config.model, layer);
  return spec;
}

BlockNorms block_norms(const ModelConfig& model) {
  const Shape shape{model.hidden};
  return {{"input_layernorm/weight", shape, {}, TensorPart::norms},
          {"post_attention_layernorm/weight", shape, {}, TensorPart::norms}};
}

Shape position_table_shape(const Config& config) {
  const std::int64_t width = attention_spec(config, 0).costs.position_width;
  return {width > 0 ? config.batch.seq_len : 0, width};
}

}  // namespace lyceum

#include "model/counts.h"

#include <numeric>

#include "model/layers.h"

namespace lyceum {

namespace {

Count always(std::int64_t parameters) { return {parameters, parameters}; }

/// Of matrices whose one side is hidden, cut into `pieces` of which a token uses `active`; 0: all of it.
std::int64_t used(std::int64_t parameters, std::int64_t pieces, std::int64_t active) {
  return pieces > 0 ? parameters / pieces * active : parameters;
}

std::int64_t router_parameters(const Config& config, std::int64_t choices) {
  std::int64_t parameters = 0;
  for (const RouterTensor& tensor : router_tensors(config, choices)) parameters += tensor.shape.size();
  return parameters;
}

void count_attention(const Config& config, BlockCounts& counts) {
  const ModelConfig& model = config.model;
  const std::int64_t queries = model.heads * model.head_dim, keys = model.kv_heads * model.head_dim;
  if (model.attention == "moa") {
    const std::int64_t expert = 2 * model.hidden * queries, shared = 2 * model.hidden * keys;
    counts.attention = {shared + config.moe.attention_experts * expert, shared + config.moe.top_k * expert};
    counts.attention_width = config.moe.top_k * queries;
    counts.routers += always(router_parameters(config, config.moe.attention_experts));
  } else {
    counts.attention = always(2 * model.hidden * (queries + keys));
    counts.attention_width = queries;
  }
}

void count_ffn(const Config& config, bool sparse, BlockCounts& counts) {
  const MoeConfig& moe = config.moe;
  const std::int64_t column = (config.model.ffn == "gelu" ? 2 : 3) * config.model.hidden;
  if (!sparse) {
    counts.ffn = always(column * config.model.ffn_hidden);
    return;
  }
  counts.shared = always(column * moe.shared_experts * moe.expert_hidden);
  if (moe.experts == 0) return;
  const std::vector<std::int64_t> widths = expert_widths(moe);
  const std::int64_t all = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
  counts.routed = {column * all, column * (all * moe.top_k / moe.experts)};
  counts.routers += always(router_parameters(config, moe.experts));
}

/// What sub-dimensions leave of a half of a block that is counted, and what they add.
void cut(const Config& config, std::int64_t pieces, Count& matrices, BlockCounts& counts) {
  if (pieces <= 0) return;
  matrices.activated = used(matrices.activated, pieces, config.sub_dimensions.active);
  counts.routers += always(config.model.hidden * pieces);
  counts.fusion += always(2 * config.model.hidden * config.sub_dimensions.fusion_width);
}

BlockCounts& operator+=(BlockCounts& sum, const BlockCounts& block) {
  sum.attention += block.attention;
  sum.ffn += block.ffn;
  sum.shared += block.shared;
  sum.routed += block.routed;
  sum.routers += block.routers;
  sum.norms += block.norms;
  sum.fusion += block.fusion;
  sum.attention_width += block.attention_width;
  return sum;
}

}  // namespace

Count& Count::operator+=(const Count& other) {
  total += other.total;
  activated += other.activated;
  return *this;
}

bool is_sparse(const Config& config, std::int64_t layer) {
  return layer >= config.model.first_dense_layers && (config.moe.experts > 0 || config.moe.shared_experts > 0);
}

BlockCounts count_block(const Config& config, std::int64_t layer) {
  const bool sparse = is_sparse(config, layer);
  BlockCounts counts;
  counts.norms = always(2 * config.model.hidden);
  count_attention(config, counts);
  count_ffn(config, sparse, counts);
  cut(config, config.sub_dimensions.attention, counts.attention, counts);
  cut(config, config.sub_dimensions.ffn, sparse ? counts.routed : counts.ffn, counts);
  return counts;
}

ModelCounts count_model(const Config& config) {
  const ModelConfig& model = config.model;
  const std::int64_t table = model.vocab * model.hidden;
  ModelCounts counts{};
  for (std::int64_t layer = 0; layer < model.layers; ++layer) counts.blocks += count_block(config, layer);
  counts.embedding = always(table);
  counts.output = always(model.hidden + (model.tie_embeddings ? 0 : table));
  const Count experts = counts.blocks.shared + counts.blocks.routed;
  const Count all = counts.embedding + counts.blocks.sum() + counts.output;
  counts.parameters = all.total;
  counts.activated = all.activated;
  counts.experts_total = experts.total;
  counts.experts_activated = experts.activated;

  const auto tokens = static_cast<double>(config.batch.seq_len);
  // A tied table still multiplies at the head.
  const std::int64_t multiplied = counts.activated - (model.tie_embeddings ? 0 : table);
  const double linear = 6.0 * static_cast<double>(multiplied) * tokens;
  const double attention = 12.0 * tokens * tokens * static_cast<double>(counts.blocks.attention_width);
  counts.flops_per_sequence = linear + attention;
  counts.causal_flops_per_sequence = linear + attention / 2;
  return counts;
}

}  // namespace lyceum

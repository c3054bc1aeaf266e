#include "model/counts.h"

#include <numeric>

#include "model/routing/mixture.h"
#include "model/routing/router.h"

namespace lyceum {

namespace {

Count always(std::int64_t parameters) { return {parameters, parameters}; }

std::int64_t router_parameters(const Config& config, const Mixture& mixture) {
  std::int64_t parameters = 0;
  for (const RouterTensor& tensor : router_tensors(config, mixture)) parameters += tensor.shape.size();
  return parameters;
}

/// Parameters of an FFN on rows of `hidden` for each unit of its width.
std::int64_t ffn_column(const ModelConfig& model, std::int64_t hidden) { return (inputs_of(model.ffn) + 1) * hidden; }

/// In attention experts take the place of the matrices of queries and output; in the FFN they are next to those that
/// every token passes.
void add_experts(const Config& config, const Mixture& mixture, BlockCounts& counts) {
  const ModelConfig& model = config.model;
  const std::int64_t all = std::accumulate(mixture.widths.begin(), mixture.widths.end(), std::int64_t{0});
  const std::int64_t active = all * mixture.k / mixture.choices();
  if (mixture.id.site == Site::attention) {
    const Count keys_and_values = always(2 * model.hidden * model.kv_heads * model.head_dim);
    counts.attention = keys_and_values + Count{2 * model.hidden * all, 2 * model.hidden * active};
    counts.attention_width = active;
  } else {
    counts.routed = {expert_column(config) * all, expert_column(config) * active};
    counts.latent = always(2 * config.moe.latent_hidden * model.hidden);
    if (config.moe.shared_gate) counts.routers += always(model.hidden);
  }
}

std::int64_t qk_norm_weights(const ModelConfig& model) {
  switch (model.qk_norm) {
    case QkNormKind::head: return 2 * model.head_dim;
    case QkNormKind::all: return (model.heads + model.kv_heads) * model.head_dim;
    default: return 0;
  }
}

/// What sub-dimensions leave of matrices that are counted, and what they add.
void cut(const Config& config, const Mixture& pieces, Count& matrices, BlockCounts& counts) {
  matrices.activated = matrices.activated / pieces.choices() * (pieces.k + pieces.always_on);
  counts.fusion += always(2 * config.model.hidden * fusion_width(config, pieces));
}

BlockCounts& operator+=(BlockCounts& sum, const BlockCounts& block) {
  sum.attention += block.attention;
  sum.ffn += block.ffn;
  sum.shared += block.shared;
  sum.routed += block.routed;
  sum.latent += block.latent;
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

std::int64_t expert_column(const Config& config) { return ffn_column(config.model, bank_hidden(config)); }

BlockCounts count_block(const Config& config, std::int64_t layer) {
  const ModelConfig& model = config.model;
  const bool sparse = is_sparse(config, layer);
  const std::int64_t queries = model.heads * model.head_dim, keys = model.kv_heads * model.head_dim;
  BlockCounts counts;
  counts.norms = always(2 * model.hidden + qk_norm_weights(model));
  counts.attention = always(2 * model.hidden * (queries + keys) + (model.qkv_bias ? queries + 2 * keys : 0));
  counts.attention_width = queries;
  (sparse ? counts.shared : counts.ffn) = always(ffn_column(model, model.hidden) * dense_width(config, layer));
  for (const Mixture& mixture : mixtures_of(config, layer)) {
    counts.routers += always(router_parameters(config, mixture));
    if (mixture.kind == Mixture::Kind::experts) {
      add_experts(config, mixture, counts);
    } else if (mixture.id.site == Site::attention) {
      cut(config, mixture, counts.attention, counts);
    } else {
      cut(config, mixture, sparse ? counts.routed : counts.ffn, counts);
    }
  }
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

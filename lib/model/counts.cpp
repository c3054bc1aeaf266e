#include "model/counts.h"

#include <numeric>

#include "model/layers.h"

namespace lyceum {

ModelCounts count_model(const Config& config) {
  const ModelConfig& model = config.model;
  const MoeConfig& moe = config.moe;
  const std::int64_t matrices_per_ffn = 3;  // gate, up, down
  const std::int64_t attention = 2 * model.hidden * (model.heads + model.kv_heads) * model.head_dim;
  const std::int64_t norms = 2 * model.hidden;
  const std::int64_t embedding = model.vocab * model.hidden;
  const std::int64_t dense_layers =
      moe.experts || moe.shared_experts ? std::min(model.first_dense_layers, model.layers) : model.layers;
  const std::int64_t moe_layers = model.layers - dense_layers;
  const std::int64_t dense_ffn = matrices_per_ffn * model.hidden * model.ffn_hidden;

  const std::vector<std::int64_t> widths = expert_widths(moe);
  const std::int64_t all_widths = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
  const std::int64_t shared_width = moe.shared_experts * moe.expert_hidden;
  const std::int64_t chosen_width = moe.experts ? all_widths * moe.top_k / moe.experts : 0;
  const std::int64_t router = moe.experts * model.hidden;
  const auto experts = [&](std::int64_t width) { return moe_layers * matrices_per_ffn * model.hidden * width; };

  ModelCounts counts{};
  counts.experts_total = experts(all_widths + shared_width);
  counts.experts_activated = experts(chosen_width + shared_width);
  const std::int64_t rest = model.layers * (attention + norms) + dense_layers * dense_ffn + moe_layers * router +
                            model.hidden + embedding * (model.tie_embeddings ? 1 : 2);
  counts.parameters = rest + counts.experts_total;
  counts.activated = rest + counts.experts_activated;

  const auto tokens = static_cast<double>(config.batch.seq_len);
  // A tied table still multiplies at the head.
  const std::int64_t multiplied = counts.activated - (model.tie_embeddings ? 0 : embedding);
  const double linear = 6.0 * static_cast<double>(multiplied) * tokens;
  const double attention_flops =
      12.0 * static_cast<double>(model.layers) * tokens * tokens * static_cast<double>(model.heads * model.head_dim);
  counts.flops_per_sequence = linear + attention_flops;
  counts.causal_flops_per_sequence = linear + attention_flops / 2;
  return counts;
}

}  // namespace lyceum

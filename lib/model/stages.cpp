#include "model/stages.h"

#include <numeric>

#include "model/layers.h"
#include "parallel/pipeline/balance.h"

namespace lyceum {

double block_flops(const Config& config, std::int64_t layer) {
  const ModelConfig& model = config.model;
  const MoeConfig& moe = config.moe;
  const std::int64_t shared = moe.shared_experts * moe.expert_hidden;
  std::int64_t width = model.ffn_hidden, router = 0;  // a dense layer
  if (layer >= model.first_dense_layers && (moe.experts > 0 || shared > 0)) {
    const std::vector<std::int64_t> widths = expert_widths(moe);
    const std::int64_t all = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
    width = shared + (moe.experts > 0 ? all * moe.top_k / moe.experts : 0);
    router = moe.experts;
  }
  const std::int64_t attention = 2 * (model.heads + model.kv_heads) * model.head_dim, norms = 2;
  const auto weights = static_cast<double>(model.hidden * (attention + norms + router + 3 * width));
  const auto tokens = static_cast<double>(config.batch.seq_len);
  return 2 * weights * tokens + 2 * tokens * tokens * static_cast<double>(model.heads * model.head_dim);
}

double head_flops(const Config& config) {
  const ModelConfig& model = config.model;
  return 2 * static_cast<double>((model.vocab + 1) * model.hidden) * static_cast<double>(config.batch.seq_len);
}

std::vector<Range> stage_blocks(const Config& config, int stages) {
  std::vector<double> costs;
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) costs.push_back(block_flops(config, layer));
  const std::vector<int> cuts = balance_stages(costs, stages, 0, head_flops(config));
  std::vector<Range> blocks;
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) blocks.push_back({cuts[s], cuts[s + 1] - cuts[s]});
  return blocks;
}

}  // namespace lyceum

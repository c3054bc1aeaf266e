#include "model/stages.h"

#include "model/counts.h"
#include "model/sublayer_spec.h"
#include "parallel/pipeline/balance.h"
#include "parallel/tensor/linear_cross_entropy.h"

namespace lyceum {

double block_flops(const Config& config, std::int64_t layer) {
  const BlockCounts counts = count_block(config, layer);
  const auto tokens = static_cast<double>(config.batch.seq_len);
  return 2 * static_cast<double>(counts.sum().activated) * tokens + counts.causal_attention_flops;
}

double recomputed_flops(const Config& config, std::int64_t layer) {
  if (config.model.recompute == Recompute::full) return block_flops(config, layer);
  if (config.model.recompute == Recompute::none) return 0;
  const std::int64_t products = 2 * attention_spec(config, layer).costs.repeated_parameters * config.batch.seq_len;
  return count_block(config, layer).causal_attention_flops + static_cast<double>(products);
}

double head_flops(const Config& config) {
  const ModelConfig& model = config.model;
  return 2 * static_cast<double>((model.vocab + 1) * model.hidden) * static_cast<double>(config.batch.seq_len);
}

double recomputed_head_flops(const Config& config) {
  const ModelConfig& model = config.model;
  if (LinearCrossEntropy::keeps_logits(model.loss_chunk, config.batch.micro * config.batch.seq_len)) return 0;
  return 2 * static_cast<double>(model.vocab * model.hidden) * static_cast<double>(config.batch.seq_len);
}

StageFlops stage_flops(const Config& config, const Range& blocks) {
  StageFlops flops;
  if (blocks.end() == config.model.layers) {
    flops.forward = head_flops(config);
    flops.recomputed = flops.early_weights = recomputed_head_flops(config);
  }
  for (std::int64_t layer = blocks.first; layer < blocks.end(); ++layer) {
    flops.forward += block_flops(config, layer);
    flops.recomputed += recomputed_flops(config, layer);
  }
  return flops;
}

std::vector<Range> stage_blocks(const Config& config, int stages) {
  std::vector<double> costs;
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    costs.push_back(3 * block_flops(config, layer) + recomputed_flops(config, layer));
  }
  const std::vector<int> cuts =
      balance_stages(costs, stages, 0, 3 * head_flops(config) + recomputed_head_flops(config));
  std::vector<Range> blocks;
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) blocks.push_back({cuts[s], cuts[s + 1] - cuts[s]});
  return blocks;
}

}  // namespace lyceum

#include "model/stages.h"

#include "model/counts.h"
#include "parallel/pipeline/balance.h"

namespace lyceum {

double block_flops(const Config& config, std::int64_t layer) {
  const BlockCounts counts = count_block(config, layer);
  const auto tokens = static_cast<double>(config.batch.seq_len);
  return 2 * static_cast<double>(counts.sum().activated) * tokens +
         2 * tokens * tokens * static_cast<double>(counts.attention_width);
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

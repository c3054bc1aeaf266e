#include "model/stages.h"

#include <optional>
#include <utility>

#include "model/counts.h"
#include "model/prediction_modules.h"
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

StageFlops module_block_flops(const Config& config) {
  if (config.mtp.depth == 0) return {};
  const auto modules = static_cast<double>(config.mtp.depth);
  const PredictionModule module = prediction_module(config.model);
  const auto flops_of = [&](std::int64_t elements) {
    return 2 * static_cast<double>(elements) * static_cast<double>(config.batch.seq_len);
  };
  const std::int64_t layer = config.model.layers;
  double again = recomputed_flops(config, layer);
  // The final norm follows what is recomputed.
  if (config.model.recompute == Recompute::full) again += flops_of(module.elements() - module.final_norm.shape.size());
  return {.forward = modules * (block_flops(config, layer) + flops_of(module.elements())),
          .recomputed = modules * again};
}

StageFlops output_flops(const Config& config) {
  StageFlops flops = module_block_flops(config);
  const auto modules = static_cast<double>(config.mtp.depth);
  const double table = static_cast<double>(config.model.vocab * config.model.hidden),
               tokens = static_cast<double>(config.batch.seq_len);
  flops.forward += head_flops(config) + modules * 2 * table * tokens;
  flops.early_weights = (1 + modules) * recomputed_head_flops(config);
  flops.recomputed += flops.early_weights;
  return flops;
}

StageFlops stage_flops(const Config& config, const Range& blocks) {
  StageFlops flops;
  if (blocks.end() == config.model.layers) flops = output_flops(config);
  for (std::int64_t layer = blocks.first; layer < blocks.end(); ++layer) {
    flops.forward += block_flops(config, layer);
    flops.recomputed += recomputed_flops(config, layer);
  }
  return flops;
}

Config dividing_config(Config config) {
  if (config.division_batch) config.batch = *std::exchange(config.division_batch, std::nullopt);
  return config;
}

std::vector<Range> stage_blocks(const Config& given, int stages) {
  const Config config = dividing_config(given);
  std::vector<double> costs;
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    costs.push_back(3 * block_flops(config, layer) + recomputed_flops(config, layer));
  }
  const std::vector<int> cuts = balance_stages(costs, stages, 0, output_flops(config).all());
  std::vector<Range> blocks;
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) blocks.push_back({cuts[s], cuts[s + 1] - cuts[s]});
  return blocks;
}

}  // namespace lyceum

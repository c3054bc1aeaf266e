#include "model/counts.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "model/dropout.h"
#include "model/prediction_modules.h"
#include "model/sublayer_spec.h"

namespace lyceum {

namespace {

/// The counts of a block, indexed by TensorPart.
constexpr std::array<Count BlockCounts::*, 8> parts{
    &BlockCounts::attention, &BlockCounts::ffn,     &BlockCounts::shared, &BlockCounts::routed,
    &BlockCounts::latent,    &BlockCounts::routers, &BlockCounts::norms,  &BlockCounts::fusion};

Count always(std::int64_t parameters) { return {parameters, parameters}; }

/// Adds the FLOPs of scores and weighted sums, forward, for one sequence.
void add(BlockCounts& counts, const AttentionCosts& costs, std::int64_t seq_len) {
  const auto tokens = static_cast<double>(seq_len);
  const auto seen = static_cast<double>(costs.window > 0 ? std::min(costs.window, seq_len) : seq_len);
  const auto pair = 2 * static_cast<double>(costs.score_width + costs.value_width);
  counts.attention_flops += tokens * seen * pair;
  counts.causal_attention_flops += (tokens * seen - seen * seen / 2) * pair;
}

/// Adds the tensors and costs of one half. Chosen tensors count as activated in proportion to the choices that one
/// token uses.
void add(BlockCounts& counts, const SublayerSpec& spec, std::int64_t seq_len) {
  std::array<std::int64_t, parts.size()> chosen{};
  for (const SublayerTensor& tensor : spec.tensors) {
    const auto part = static_cast<std::size_t>(tensor.part);
    const std::int64_t elements = tensor.elements();
    counts.*parts[part] += {elements, tensor.chosen ? 0 : elements};
    if (tensor.chosen) chosen[part] += elements;
  }
  for (std::size_t part = 0; spec.mixture && part < parts.size(); ++part) {
    const std::int64_t used = spec.mixture->k + spec.mixture->never_chosen();
    counts.*parts[part] += {0, chosen[part] * used / spec.mixture->choices()};
  }
  add(counts, spec.costs, seq_len);
}

BlockCounts& operator+=(BlockCounts& sum, const BlockCounts& block) {
  for (const auto part : parts) sum.*part += block.*part;
  sum.attention_flops += block.attention_flops;
  sum.causal_attention_flops += block.causal_attention_flops;
  return sum;
}

}  // namespace

Count& Count::operator+=(const Count& other) {
  total += other.total;
  activated += other.activated;
  return *this;
}

Count BlockCounts::sum() const {
  Count all;
  for (const auto part : parts) all += this->*part;
  return all;
}

BlockCounts count_block(const Config& config, std::int64_t layer) {
  const BlockNorms norms = block_norms(config.model);
  BlockCounts counts;
  counts.norms = always(norms.attention.elements() + norms.ffn.elements());
  if (learns_rates(config.model.dropout)) {
    const BlockRates rates = block_rates(config.model);
    counts.norms += always(rates.attention.elements() + rates.ffn.elements());
  }
  add(counts, attention_spec(config, layer), config.batch.seq_len);
  add(counts, ffn_spec(config, layer), config.batch.seq_len);
  return counts;
}

ModelCounts count_model(const Config& config) {
  const ModelConfig& model = config.model;
  const std::int64_t table = model.vocab * model.hidden;
  ModelCounts counts{};
  for (std::int64_t layer = 0; layer < model.layers; ++layer) counts.blocks += count_block(config, layer);
  BlockCounts module_blocks;
  for (std::int64_t layer = model.layers; layer < all_blocks(config); ++layer) {
    module_blocks += count_block(config, layer);
    counts.modules += always(prediction_module(model).elements());
  }
  counts.modules += module_blocks.sum();
  counts.embedding = always(table + (learns_rates(model.dropout) ? embedding_rate(model).elements() : 0));
  counts.output = always(model.hidden + (model.tie_embeddings ? 0 : table));
  const Count experts = counts.blocks.shared + counts.blocks.routed;
  const Count all = counts.embedding + counts.blocks.sum() + counts.output;
  counts.parameters = all.total;
  counts.activated = all.activated;
  counts.experts_total = experts.total;
  counts.experts_activated = experts.activated;

  const auto tokens = static_cast<double>(config.batch.seq_len);
  // The head multiplies by a tied table, so only an untied input table is left out. Every module uses the head again.
  const std::int64_t multiplied =
      counts.activated - (model.tie_embeddings ? 0 : table) + counts.modules.activated + config.mtp.depth * table;
  const double linear = 6.0 * static_cast<double>(multiplied) * tokens;
  counts.flops_per_sequence = linear + 3 * (counts.blocks.attention_flops + module_blocks.attention_flops);
  counts.causal_flops_per_sequence =
      linear + 3 * (counts.blocks.causal_attention_flops + module_blocks.causal_attention_flops);
  return counts;
}

}  // namespace lyceum

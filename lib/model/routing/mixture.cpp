#include "model/routing/mixture.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "model/attention/heads.h"

namespace lyceum {

namespace {

std::vector<std::int64_t> equal_widths(std::int64_t choices, std::int64_t width) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(choices), width);
}

/// Returns the number of routed experts with weights in a layer with a sparse FFN.
std::int64_t experts_in(const Config& config, std::int64_t layer) {
  const std::vector<std::int64_t>& own = config.moe.experts_of_layers;
  return own.empty()
             ? config.moe.experts
             : own.at(static_cast<std::size_t>(block_like(config.model, layer) - config.model.first_dense_layers));
}

}  // namespace

bool is_sparse(const Config& config, std::int64_t layer) {
  return block_like(config.model, layer) >= config.model.first_dense_layers &&
         (config.moe.experts > 0 || config.moe.shared_experts > 0);
}

std::int64_t dense_width(const Config& config, std::int64_t layer) {
  return is_sparse(config, layer) ? config.moe.shared_experts * config.moe.expert_hidden : config.model.ffn_hidden;
}

std::optional<Mixture> attention_experts(const Config& config, std::int64_t layer) {
  const AttentionExpertsConfig& experts = config.attention_experts;
  if (most_attention_experts(config) == 0) return {};
  const std::vector<std::int64_t>& own = experts.count_of_layers;
  const std::int64_t count =
      own.empty() ? experts.count : own.at(static_cast<std::size_t>(block_like(config.model, layer)));
  return Mixture{.id = {layer, Site::attention},
                 .router = config.moe.router,
                 .router_bias = config.moe.router_bias,
                 .gates = attention_gates_of(config),
                 .k = experts.top_k,
                 .widths = equal_widths(count, heads_of(config.model, layer).queries())};
}

std::optional<Mixture> routed_experts(const Config& config, std::int64_t layer) {
  const MoeConfig& moe = config.moe;
  if (moe.experts == 0 || !is_sparse(config, layer)) return {};
  std::vector<std::int64_t> widths =
      moe.expert_sizes.empty() ? equal_widths(experts_in(config, layer), moe.expert_hidden) : moe.expert_sizes;
  widths.resize(widths.size() + static_cast<std::size_t>(moe.zero_experts + moe.copy_experts), 0);
  return Mixture{.id = {layer, Site::ffn},
                 .router = moe.router,
                 .router_bias = moe.router_bias,
                 .gates = gates_of(moe),
                 .gate_scale = moe.routed_scale,
                 .k = moe.top_k,
                 .always_on = moe.shared_experts,
                 .group_limit = moe.group_limit,
                 .group_score = moe.group_score,
                 .capacity_factor = moe.capacity_factor,
                 .widths = std::move(widths),
                 .zeros = moe.zero_experts,
                 .copies = moe.copy_experts};
}

std::optional<Mixture> sub_dimensions_of(const Config& config, const MixtureId& id) {
  const SubDimensionsConfig& parts = config.sub_dimensions;
  const std::int64_t count = id.site == Site::attention ? parts.attention : parts.ffn;
  if (count == 0) return {};
  return Mixture{.id = id,
                 .kind = Mixture::Kind::sub_dimensions,
                 .router = RouterKind::softmax,
                 .gates = Gates::raw,
                 .k = parts.active - parts.shared,
                 .always_on = parts.shared,
                 .widths = equal_widths(count, config.model.hidden / count)};
}

std::int64_t fusion_width(const Config& config, const Mixture& mixture) {
  const std::int64_t width = config.sub_dimensions.fusion_width;
  return width < 0 ? mixture.choices() : width;
}

std::int64_t fewest_experts(const Config& config) {
  const std::vector<std::int64_t>& own = config.moe.experts_of_layers;
  if (config.moe.experts <= 0 || config.model.first_dense_layers >= config.model.layers) return 0;
  return own.empty() ? config.moe.experts : std::ranges::min(own);
}

std::vector<Mixture> mixtures_of(const Config& config, std::int64_t layer) {
  std::vector<Mixture> mixtures;
  if (std::optional<Mixture> experts = attention_experts(config, layer)) mixtures.push_back(std::move(*experts));
  if (std::optional<Mixture> sub_dimensions = sub_dimensions_of(config, {layer, Site::attention}))
    mixtures.push_back(std::move(*sub_dimensions));
  if (std::optional<Mixture> experts = routed_experts(config, layer)) mixtures.push_back(std::move(*experts));
  if (std::optional<Mixture> sub_dimensions = sub_dimensions_of(config, {layer, Site::ffn}))
    mixtures.push_back(std::move(*sub_dimensions));
  std::erase_if(mixtures, [](const Mixture& mixture) { return mixture.k == 0; });
  return mixtures;
}

std::vector<Mixture> mixtures_of(const Config& config) {
  std::vector<Mixture> all;
  for (std::int64_t layer = 0; layer < all_blocks(config); ++layer) {
    std::ranges::move(mixtures_of(config, layer), std::back_inserter(all));
  }
  return all;
}

StageParts parts_of(const Config& config, const Range& blocks) {
  return {.input = blocks.first == 0, .blocks = blocks, .output = blocks.end() == config.model.layers};
}

bool shares_table(const Config& config) { return config.model.tie_embeddings || config.mtp.depth > 0; }

bool reads_tokens(const Config& config, const StageParts& stage) {
  if (stage.input || stage.output) return true;
  for (std::int64_t layer = stage.blocks.first; layer < stage.blocks.end(); ++layer) {
    const std::vector<Mixture> mixtures = mixtures_of(config, layer);
    if (std::ranges::find(mixtures, RouterKind::hash, &Mixture::router) != mixtures.end()) return true;
  }
  return false;
}

Mixture mixture_of(const Config& config, const MixtureId& id) {
  std::vector<Mixture> mixtures = mixtures_of(config, id.layer);
  const auto found = std::ranges::find(mixtures, id, &Mixture::id);
  require_input(found != mixtures.end(), "layer {}: this model has no router there", label_of(id));
  return std::move(*found);
}

}  // namespace lyceum

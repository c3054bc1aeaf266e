#include "config/moe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"
#include "io/text/table.h"

namespace lyceum {

std::int64_t bank_hidden(const Config& config) {
  return config.moe.latent_hidden > 0 ? config.moe.latent_hidden : config.model.hidden;
}

std::vector<ExpertNumber> expert_numbers(const Config& config) {
  const MoeConfig& moe = config.moe;
  const std::vector<std::int64_t>& own = moe.experts_of_layers;
  if (own.empty()) {
    return {{.experts = moe.experts,
             .choices = choices_of(moe),
             .experts_text = fmt::format("moe.experts = {}", moe.experts),
             .choices_text = fmt::format("{} = {}", choices_keys(moe), choices_of(moe))}};
  }
  std::vector<ExpertNumber> numbers;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (std::ranges::find(numbers, own[i], &ExpertNumber::experts) != numbers.end()) continue;
    const std::int64_t layer = config.model.first_dense_layers + static_cast<std::int64_t>(i);
    const std::int64_t choices = own[i] + choices_of(moe) - moe.experts;
    const auto text = [&](std::int64_t n) { return fmt::format("the {} of layer {}", count_text(n, "expert"), layer); };
    numbers.push_back(
        {.experts = own[i], .choices = choices, .experts_text = text(own[i]), .choices_text = text(choices)});
  }
  return numbers;
}

void declare_keys(ConfigKeys& keys, MoeConfig& moe) {
  const KeySection key(keys, KeyRole::identity);
  key("moe.experts", &moe.experts, {.low = 0, .high = 65536}, "routed experts of a block; 0: every FFN is dense",
      {.other_names = {"num_experts", "num_local_experts", "n_routed_experts"}});
  key("moe.experts_of_layers", &moe.experts_of_layers, {.low = 1, .high = 65536},
      "routed experts of each block after model.first_dense_layers, if they differ; overrides experts");
  key("moe.zero_experts", &moe.zero_experts, {.low = 0, .high = 65536}, "additional routed experts whose output is 0");
  key("moe.copy_experts", &moe.copy_experts, {.low = 0, .high = 65536},
      "additional routed experts whose output is their input");
  key("moe.latent_hidden", &moe.latent_hidden, {.low = 0},
      "width of the routed experts' input and output, between two projections; 0: model.hidden, no projections");
  key("moe.shared_experts", &moe.shared_experts, {.low = 0}, "experts that process every token",
      {.other_names = {"n_shared_experts", "num_shared_experts"}});
  key("moe.shared_gate", &moe.shared_gate, {},
      "multiply the output of shared experts by the sigmoid of the token's product with a vector",
      {.other_names = {"moe_shared_expert_gate"}});
  key("moe.top_k", &moe.top_k, {.low = 1}, "routed experts that a token chooses",
      {.other_names = {"num_experts_per_tok", "moe_router_topk", "topk"}});
  key("moe.top_k_start", &moe.top_k_start, {.low = 0},
      "top_k in the first training step; grows linearly to top_k in the last one; 0: always top_k");
  key("moe.expert_hidden", &moe.expert_hidden, {.low = 0}, "width of an expert",
      {.other_names = {"moe_intermediate_size", "moe_ffn_hidden_size"}});
  key("moe.expert_sizes", &moe.expert_sizes, {.low = 1}, "width of each routed expert; overrides expert_hidden");
  declare_router_keys(keys, moe);
}

namespace {

/// Checks moe.experts_of_layers against the keys that overlap with it.
void check_experts_of_layers(Findings& findings, const Config& config) {
  const std::vector<std::int64_t>& own = config.moe.experts_of_layers;
  if (own.empty()) return;
  const std::int64_t layers = config.model.layers - config.model.first_dense_layers;
  findings.unless(config.moe.experts > 0,
                  "moe.experts_of_layers lists {} numbers but moe.experts = 0: set moe.experts = {}", own.size(),
                  *std::ranges::max_element(own));
  findings.unless(std::ssize(own) == layers,
                  "moe.experts_of_layers lists {} numbers for the {} after model.first_dense_layers = {}: give one "
                  "per layer",
                  own.size(), count_text(layers, "layer"), config.model.first_dense_layers);
  findings.unless(config.moe.expert_sizes.empty(),
                  "moe.experts_of_layers with moe.expert_sizes, which lists the experts of every layer: set one or the "
                  "other");
}

/// Checks keys that have a meaning only with routed experts.
void check_no_experts(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  findings.unless(moe.shared_experts <= 0 || moe.expert_hidden > 0,
                  "the shared experts have no width: set moe.expert_hidden");
  findings.unless(moe.expert_sizes.empty(),
                  "moe.expert_sizes lists {} widths but moe.experts = 0: set moe.experts = {}", moe.expert_sizes.size(),
                  moe.expert_sizes.size());
  findings.unless(config.parallel.expert <= 1,
                  "parallel.expert = {} with no experts to divide: set parallel.expert = 1, or moe.experts",
                  config.parallel.expert);
  constexpr const char* alternative = ", or moe.experts";
  findings.unless_zero("moe.top_k_start", moe.top_k_start, "with no experts to choose from", alternative);
  findings.unless_zero("moe.zero_experts", moe.zero_experts, "with no routed experts", alternative);
  findings.unless_zero("moe.copy_experts", moe.copy_experts, "with no routed experts", alternative);
  findings.unless_zero("moe.latent_hidden", moe.latent_hidden, "with no routed experts", alternative);
  findings.unless_zero("moe.capacity_factor", moe.capacity_factor, "with no experts to limit", alternative);
  findings.unless(moe.routed_scale == 1, "moe.routed_scale = {} with no routed experts: set moe.routed_scale = 1{}",
                  moe.routed_scale, alternative);
}

}  // namespace

void check_moe(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  check_experts_of_layers(findings, config);
  findings.unless(!moe.shared_gate || (moe.experts > 0 && moe.shared_experts > 0),
                  "moe.shared_gate = true with moe.experts = {} and moe.shared_experts = {}: set both, or "
                  "moe.shared_gate = false",
                  moe.experts, moe.shared_experts);
  if (moe.experts <= 0) return check_no_experts(findings, config);
  for (const ExpertNumber& layer : expert_numbers(config)) {
    findings.unless(moe.top_k <= layer.choices, "moe.top_k = {} is more than {}", moe.top_k, layer.choices_text);
  }
  findings.unless(
      moe.latent_hidden <= 0 || moe.latent_hidden < config.model.hidden,
      "moe.latent_hidden = {} is not below model.hidden = {}: set a smaller width, or moe.latent_hidden = 0",
      moe.latent_hidden, config.model.hidden);
  findings.unless(moe.top_k_start <= moe.top_k, "moe.top_k_start = {} is more than moe.top_k = {}", moe.top_k_start,
                  moe.top_k);
  findings.unless(moe.expert_sizes.empty() || std::ssize(moe.expert_sizes) == moe.experts,
                  "moe.expert_sizes lists {} widths for moe.experts = {}: give one width per expert",
                  moe.expert_sizes.size(), moe.experts);
  findings.unless(moe.expert_hidden > 0 || !moe.expert_sizes.empty(),
                  "the experts have no width: set moe.expert_hidden or moe.expert_sizes");
  findings.unless(moe.expert_hidden > 0 || moe.expert_sizes.empty() || moe.shared_experts == 0,
                  "the shared experts have no width: set moe.expert_hidden in addition to moe.expert_sizes");
  for (const ExpertNumber& layer : expert_numbers(config)) {
    findings.unless(config.parallel.expert <= layer.experts,
                    "parallel.expert = {} is more than {}: some ranks would hold no expert", config.parallel.expert,
                    layer.experts_text);
    findings.unless(config.balance.device_groups <= layer.experts,
                    "balance.device_groups = {} is more than {}: some groups would be empty",
                    config.balance.device_groups, layer.experts_text);
  }
}

namespace {

bool all_equal(const std::vector<std::int64_t>& values) {
  return std::ranges::adjacent_find(values, std::ranges::not_equal_to()) == values.end();
}

void simplify_experts(MoeConfig& moe) {
  if (!moe.experts_of_layers.empty()) {
    moe.experts = *std::ranges::max_element(moe.experts_of_layers);
    if (all_equal(moe.experts_of_layers)) moe.experts_of_layers.clear();
  }
  const bool same_width = !moe.expert_sizes.empty() && all_equal(moe.expert_sizes);
  if (same_width && (moe.shared_experts == 0 || moe.expert_hidden == moe.expert_sizes.front())) {
    moe.expert_hidden = moe.expert_sizes.front();
    moe.expert_sizes.clear();
  }
  if (!moe.expert_sizes.empty() && moe.shared_experts == 0) moe.expert_hidden = 0;
  if (moe.top_k_start == moe.top_k) moe.top_k_start = 0;
  if (moe.group_limit == 0) moe.group_score = MoeConfig{}.group_score;
}

/// Resets the keys that have an effect only with routed experts. Attention experts use the same kind of router, so its
/// keys are kept if attention has experts. moe.even_routing is also for routers of sub-dimensions.
void remove_experts(Config& config) {
  MoeConfig left;
  const MoeConfig& moe = config.moe;
  const bool attention_routes = config.model.attention == AttentionKind::experts;
  left.shared_experts = moe.shared_experts;
  if (moe.shared_experts > 0) left.expert_hidden = moe.expert_hidden;
  if (attention_routes) {
    left.router = moe.router;
    left.router_bias = moe.router_bias;
    left.router_hidden = moe.router_hidden;
  }
  if (attention_routes || chooses_sub_dimensions(config.sub_dimensions)) left.even_routing = moe.even_routing;
  config.moe = std::move(left);
}

}  // namespace

void simplify_moe(Config& config) {
  MoeConfig& moe = config.moe;
  if (moe.experts > 0 && config.model.first_dense_layers < config.model.layers) {
    simplify_experts(moe);
  } else {
    remove_experts(config);
  }
  if (moe.router != RouterKind::mlp) moe.router_hidden = MoeConfig{}.router_hidden;
}

}  // namespace lyceum

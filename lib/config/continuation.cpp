#include "config/continuation.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lyceum {

namespace {

bool all_equal(const std::vector<std::int64_t>& values) {
  return std::ranges::adjacent_find(values, std::ranges::not_equal_to()) == values.end();
}

/// Simplifies the keys of a model's experts, if it has any.
void simplify_experts(Config& config) {
  MoeConfig& moe = config.moe;
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
  moe.renormalize = false;  // as moe.gates, which is resolved, says
}

/// Keys of a model without routed experts.
void remove_experts(Config& config) {
  MoeConfig& moe = config.moe;
  MoeConfig left;
  left.shared_experts = moe.shared_experts;
  if (moe.shared_experts > 0) left.expert_hidden = moe.expert_hidden;
  if (config.model.attention == "moa") {  // whose router is of the same kind
    left.router = moe.router;
    left.router_hidden = moe.router_hidden;
    left.even_routing = moe.even_routing;
  }
  moe = std::move(left);
}

void simplify_balance(Config& config) {
  BalanceConfig& balance = config.balance;
  const BalanceConfig initial;
  if (!(balance.device > 0) && config.moe.group_limit == 0) balance.device_groups = initial.device_groups;
  const bool counts = balance.expert > 0 || balance.device > 0 || balance.mutual_information > 0 ||
                      balance.concentration > 0 || balance.sub_dimension > 0;
  if (!counts) balance.scope = initial.scope;
}

}  // namespace

KeyRole role_of(std::string_view key) {
  using enum KeyRole;
  constexpr std::array<std::pair<std::string_view, KeyRole>, 20> keys{{{"run.seed", identity},
                                                                       {"run.precision", tuning},
                                                                       {"run.gemm_choice", reported},
                                                                       {"data.valid", reported},
                                                                       {"data.tokenizer", operation},
                                                                       {"data.changed", operation},
                                                                       {"data.chat", operation},
                                                                       {"data.end_tokens", operation},
                                                                       {"batch.global", tuning},
                                                                       {"batch.micro", operation},
                                                                       {"model.recompute", operation},
                                                                       {"model.loss_chunk", operation},
                                                                       {"balance.bias_rate", tuning},
                                                                       {"optim.train_only", identity},
                                                                       {"optim.router_penalty", identity},
                                                                       {"optim.router_penalty_from", identity},
                                                                       {"optim.schedule_steps", operation},
                                                                       {"run.", operation},
                                                                       {"data.", identity},
                                                                       {"batch.", identity}}};
  for (const auto& [name, role] : keys) {
    if (name.ends_with('.') ? key.starts_with(name) : key == name) return role;
  }
  if (describes_model(key) || key.starts_with("balance.")) return identity;
  return key.starts_with("optim.") ? tuning : operation;
}

Config effective(Config config) {
  ModelConfig& model = config.model;
  const MoeConfig& moe = config.moe;
  moe.experts > 0 ? simplify_experts(config) : remove_experts(config);
  if (moe.router != RouterKind::mlp) config.moe.router_hidden = MoeConfig{}.router_hidden;
  const bool sparse = moe.experts > 0 || moe.shared_experts > 0;
  if (!sparse) model.first_dense_layers = 0;
  if (sparse && model.first_dense_layers == 0) model.ffn_hidden = 0;
  if (model.attention != "moa") config.attention_experts = {};
  SubDimensionsConfig& parts = config.sub_dimensions;
  if (parts.attention == 0 && parts.ffn == 0) parts = {};
  if (parts.gates == PieceGates::ones) parts.scaling = SubDimensionsConfig{}.scaling;
  simplify_balance(config);
  OptimConfig& optim = config.optim;
  if (optim.schedule == "constant") optim.min_lr = 0;
  if (optim.schedule != "wsd") optim.decay_steps = 0;
  if (!config.data.valid.empty()) config.data.valid_fraction = 0;
  return config;
}

std::vector<Change> changes(const Config& before, const Config& now) {
  std::vector<Change> found;
  for (Difference& difference : differences(effective(before), effective(now))) {
    KeyRole role = role_of(difference.key);
    const bool groups_are_ranks = before.balance.device_groups == before.parallel.expert &&
                                  now.balance.device_groups == now.parallel.expert && now.moe.group_limit == 0;
    if (difference.key == "balance.device_groups" && groups_are_ranks) role = KeyRole::reported;  // another mesh
    if (difference.key == "parallel.placement" && now.moe.experts > 0) {  // it makes balance.device_groups
      if (now.balance.device > 0) role = KeyRole::reported;
      if (now.moe.group_limit > 0) role = KeyRole::identity;
    }
    if (role != KeyRole::operation) found.push_back({std::move(difference), role});
  }
  return found;
}

}  // namespace lyceum

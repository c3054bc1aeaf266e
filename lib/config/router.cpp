#include "config/router.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"
#include "kernels/router.h"

namespace lyceum {

Gates gates_of(const MoeConfig& moe) {
  if (moe.gates) return *moe.gates;
  if (moe.router == RouterKind::uniform) return Gates::renormalized;
  return moe.router == RouterKind::hash ? Gates::ones : Gates::raw;
}

Gates attention_gates_of(const Config& config) {
  if (config.attention_experts.gates) return *config.attention_experts.gates;
  if (config.moe.router == RouterKind::hash) return Gates::ones;
  if (config.moe.router == RouterKind::uniform) return Gates::renormalized;
  return scores_of(config.moe.router) == Scores::softmax ? Gates::detached : Gates::renormalized;
}

std::int64_t choices_of_allowed_groups(const Config& config, std::int64_t choices) {
  return config.moe.group_limit * (choices / config.balance.device_groups);
}

void declare_router_keys(ConfigKeys& keys, MoeConfig& moe) {
  const KeySection key(keys, KeyRole::identity);
  key("moe.router", &moe.router,
      "how a token's experts are chosen: softmax, sigmoid or sqrt_softplus of one matrix; softmax of two (mlp); noisy, "
      "with noise; random, a fixed random matrix; hash, by the token's hash; uniform, all equally likely",
      {.other_names = {"scoring_func", "moe_router_score_function"}});
  key("moe.router_bias", &moe.router_bias, {}, "add a trained bias to the router's logits",
      {.other_names = {"moe_router_bias", "router_bias"}});
  key("moe.router_hidden", &moe.router_hidden, {.low = 1}, "width between the two matrices of an mlp router");
  key("moe.gates", &moe.gates,
      "factors of the chosen experts' outputs: raw scores, renormalized to a sum of 1, detached (no gradient of the "
      "sum), ones",
      {.other_names = {"norm_topk_prob"}, .alias = {.name = "moe.renormalize", .on = "renormalized", .off = "auto"}});
  key("moe.routed_scale", &moe.routed_scale, {.low = 0, .high = 1e4, .low_open = true},
      "factor of the gates, after they are renormalized",
      {.other_names = {"routed_scaling_factor", "moe_router_topk_scaling_factor"}});
  key("moe.group_limit", &moe.group_limit, {.low = 0},
      "most groups (balance.device_groups) that a token's experts may be in; 0: no limit",
      {.other_names = {"topk_group", "moe_router_group_topk"}});
  key("moe.group_score", &moe.group_score,
      "with moe.group_limit, a token chooses the groups with the largest sums of their two best scores (top2), or with "
      "the best scores (maximum)");
  key("moe.even_routing", &moe.even_routing, {}, "send equally many tokens to all experts, to measure speed");
  key("moe.capacity_factor", &moe.capacity_factor, {.low = 0, .high = 1e6},
      "in training, an expert accepts at most this multiple of its even share of a sequence's choices; 0: no limit",
      {.other_names = {"moe_expert_capacity_factor"}});
}

namespace {

/// A router's keys and their values, for messages.
struct RouterKeys {
  const char *top_k_key, *gates_key;
  std::int64_t top_k;
  Gates gates;
};

/// Returns the routers that the model has: one entry for FFNs, one for attention.
std::vector<RouterKeys> routers_of(const Config& config) {
  std::vector<RouterKeys> routers;
  if (config.moe.experts > 0) routers.push_back({"moe.top_k", "moe.gates", config.moe.top_k, gates_of(config.moe)});
  if (config.model.attention == AttentionKind::experts) {
    routers.push_back({"attention_experts.top_k", "attention_experts.gates", config.attention_experts.top_k,
                       attention_gates_of(config)});
  }
  return routers;
}

/// Checks settings that are possible only with softmax scores.
void check_separate_scores(Findings& findings, const Config& config) {
  const std::string kind = name_of(config.moe.router);
  for (const RouterKeys& router : routers_of(config)) {
    findings.unless(router.gates == Gates::raw || router.gates == Gates::renormalized,
                    "{} = {} with moe.router = {}: set {} = raw or renormalized", router.gates_key,
                    name_of(router.gates), kind, router.gates_key);
  }
  findings.unless_zero("balance.z_loss", config.balance.z_loss,
                       fmt::format("with moe.router = {}, whose scores have no log-sum-exp", kind));
}

/// Checks settings that are impossible without scores: with a hash, which makes one choice, and with uniform choices.
void check_without_scores(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  const BalanceConfig& balance = config.balance;
  const std::string kind = name_of(moe.router);
  const bool hash = moe.router == RouterKind::hash;
  for (const RouterKeys& router : routers_of(config)) {
    findings.unless(!hash || router.top_k <= 1,
                    "{} = {} with moe.router = hash, which chooses one expert per token: set {} = 1", router.top_k_key,
                    router.top_k, router.top_k_key);
    findings.unless(router.gates == Gates::ones || (!hash && router.gates == Gates::renormalized),
                    "{} = {} with moe.router = {}, which has no scores: set {} = {}ones", router.gates_key,
                    name_of(router.gates), kind, router.gates_key, hash ? "" : "renormalized or ");
  }
  findings.unless(!moe.even_routing, "moe.even_routing = true with moe.router = {}: set one or the other", kind);
  findings.unless(!hash || moe.experts <= 0 || moe.routed_scale == 1,
                  "moe.routed_scale = {} with moe.router = hash, whose gates are ones: set moe.routed_scale = 1",
                  moe.routed_scale);
  findings.unless_zero("moe.top_k_start", moe.top_k_start,
                       fmt::format("with moe.router = {}, which chooses {} per token", kind,
                                   hash ? "one expert" : "the same number of experts"));
  for (const auto& [key, value] :
       {std::pair{"moe.zero_experts", moe.zero_experts}, std::pair{"moe.copy_experts", moe.copy_experts}}) {
    findings.unless_zero(key, value, fmt::format("with moe.router = {}, which chooses only from moe.experts", kind));
  }
  for (const auto& [key, value] :
       {std::pair{"balance.expert", balance.expert}, std::pair{"balance.device", balance.device},
        std::pair{"balance.z_loss", balance.z_loss},
        std::pair{"balance.mutual_information", balance.mutual_information},
        std::pair{"balance.concentration", balance.concentration}}) {
    findings.unless_zero(key, value, fmt::format("with moe.router = {}, which is not trained", kind));
  }
}

/// Checks that the groups from which a token may choose have enough experts.
void check_groups(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  const std::int64_t limit = moe.group_limit;
  const std::int64_t groups = config.balance.device_groups;
  findings.unless(has_scores(moe.router), "moe.group_limit = {} with moe.router = {}: set moe.group_limit = 0", limit,
                  name_of(moe.router));
  if (!has_scores(moe.router)) return;
  findings.unless(config.parallel.placement == PlacementKind::contiguous,
                  "moe.group_limit = {} with parallel.placement = {}, which does not keep these groups together: set "
                  "parallel.placement = contiguous",
                  limit, name_of(config.parallel.placement));
  findings.unless(groups > 0,
                  "moe.group_limit = {} needs balance.device_groups: set the number of groups, the same for every "
                  "mesh",
                  limit);
  if (groups <= 0) return;
  findings.unless(limit <= groups, "moe.group_limit = {} is more than balance.device_groups = {}", limit, groups);
  findings.unless(groups <= most_groups, "balance.device_groups = {} with moe.group_limit = {}: set at most {} groups",
                  groups, limit, most_groups);
  for (const ExpertNumber& layer : expert_numbers(config)) {
    findings.unless(divides(groups, layer.experts),
                    "balance.device_groups = {} does not divide {}, as moe.group_limit = {} requires", groups,
                    layer.experts_text, limit);
    if (!divides(groups, layer.experts) || limit > groups) continue;
    const std::int64_t open = choices_of_allowed_groups(config, layer.choices);
    findings.unless(moe.top_k <= open || moe.top_k > layer.choices,
                    "moe.top_k = {} is more than the {} experts of moe.group_limit = {} groups", moe.top_k, open,
                    limit);
  }
}

}  // namespace

void check_router(Findings& findings, const Config& config) {
  const MoeConfig& moe = config.moe;
  const bool has_bias = scores_of(moe.router) != Scores::softmax;  // a bias of the selection, not of logits
  findings.unless(!(config.balance.bias_rate > 0) || has_bias,
                  "balance.bias_rate = {} with moe.router = {}, which has no bias: set moe.router = sigmoid or "
                  "sqrt_softplus, or balance.bias_rate = 0",
                  config.balance.bias_rate, name_of(moe.router));
  if (routers_of(config).empty()) return;
  const bool one_matrix = has_bias || moe.router == RouterKind::softmax;
  findings.unless(!moe.router_bias || one_matrix,
                  "moe.router_bias = true with moe.router = {}: set moe.router = softmax, sigmoid or sqrt_softplus, or "
                  "moe.router_bias = false",
                  name_of(moe.router));
  if (has_bias) check_separate_scores(findings, config);
  if (!has_scores(moe.router)) check_without_scores(findings, config);
  if (moe.experts > 0 && moe.group_limit > 0) check_groups(findings, config);
}

void derive_gates(Config& config) {
  config.moe.gates = gates_of(config.moe);
  if (config.model.attention == AttentionKind::experts) config.attention_experts.gates = attention_gates_of(config);
}

}  // namespace lyceum

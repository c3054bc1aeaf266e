#include "config/balance.h"

#include "config/config.h"
#include "config/keys.h"

namespace lyceum {

void declare_keys(ConfigKeys& keys, BalanceConfig& balance) {
  using enum KeyRole;
  const KeySection key(keys, identity);
  key("balance.expert", &balance.expert, loss_weight, "weight of the expert-level balance loss",
      {.other_names = {"aux_loss_alpha", "moe_aux_loss_coeff", "router_aux_loss_coef"}});
  key("balance.device", &balance.device, loss_weight, "weight of the device-level balance loss");
  key("balance.device_groups", &balance.device_groups, {.low = 0},
      "groups of experts for the device-level loss; 0: parallel.expert",
      {.other_names = {"n_group", "moe_router_num_groups"}});
  key("balance.scope", &balance.scope, "tokens that loads are counted over; global: those of the step so far");
  key("balance.z_loss", &balance.z_loss, loss_weight, "weight of the squared log-sum-exp of router logits",
      {.other_names = {"moe_z_loss_coeff"}});
  key("balance.mutual_information", &balance.mutual_information, loss_weight,
      "weight of the mutual information of tokens and experts, which training increases");
  key("balance.concentration", &balance.concentration, loss_weight,
      "weight of the entropy of the mean probabilities, which training decreases");
  key("balance.sub_dimension", &balance.sub_dimension, loss_weight,
      "weight of the balance loss of the routers of sub_dimensions");
  key("balance.bias_rate", &balance.bias_rate, {.low = 0, .high = 10},
      "change per step of the selection bias of sigmoid and sqrt_softplus routers",
      {.role = tuning, .other_names = {"moe_router_bias_update_rate"}});
}

void derive_balance(Config& config) {
  std::int64_t& groups = config.balance.device_groups;
  if (groups == 0 && config.moe.group_limit == 0) groups = config.parallel.expert;
}

void simplify_balance(Config& config) {
  BalanceConfig& balance = config.balance;
  const BalanceConfig initial;
  const bool sub_dimensions_choose = chooses_sub_dimensions(config.sub_dimensions);
  if (config.moe.experts == 0) balance.device = initial.device;  // applies only to FFN experts
  if (config.moe.experts == 0 && config.model.attention != AttentionKind::experts) {
    balance.bias_rate = initial.bias_rate;
    if (!sub_dimensions_choose) balance = {.device_groups = balance.device_groups, .scope = balance.scope};
  }
  if (!(balance.device > 0) && config.moe.group_limit == 0) balance.device_groups = initial.device_groups;
  const bool counts = balance.expert > 0 || balance.device > 0 || balance.mutual_information > 0 ||
                      balance.concentration > 0 || balance.sub_dimension > 0;
  if (!counts) balance.scope = initial.scope;
}

bool groups_follow_mesh(const Config& before, const Config& now) {
  const auto are_ranks = [](const Config& config) { return config.balance.device_groups == config.parallel.expert; };
  return are_ranks(before) && are_ranks(now) && now.moe.group_limit == 0;
}

}  // namespace lyceum

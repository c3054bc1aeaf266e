#include "config/continuation.h"

#include <utility>

#include "config/keys.h"

namespace lyceum {

KeyRole role_of(std::string_view key) {
  Config initial;
  const ConfigKeys keys = keys_of(initial);
  const ConfigKey* const found = find_key(keys, key);
  return found ? found->role : KeyRole::operation;
}

Config effective(Config config) {
  simplify_data(config.data);
  simplify_model(config);
  simplify_moe(config);
  simplify_attention_experts(config);
  simplify_sub_dimensions(config.sub_dimensions);
  simplify_mtp(config.mtp);
  simplify_balance(config);
  simplify_optim(config.optim);
  return config;
}

std::vector<Change> changes(const Config& before, const Config& now) {
  std::vector<Change> found;
  for (Difference& difference : differences(effective(before), effective(now))) {
    KeyRole role = role_of(difference.key);
    if (difference.key == "balance.device_groups" && groups_follow_mesh(before, now)) role = KeyRole::reported;
    if (difference.key == "parallel.placement" &&
        now.moe.experts > 0) {  // it determines the groups of balance.device_groups
      if (now.balance.device > 0) role = KeyRole::reported;
      if (now.moe.group_limit > 0) role = KeyRole::identity;
    }
    if (role != KeyRole::operation) found.push_back({std::move(difference), role});
  }
  return found;
}

}  // namespace lyceum

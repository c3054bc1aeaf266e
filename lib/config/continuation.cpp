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
  simplify_balance(config);
  simplify_optim(config.optim);
  return config;
}

std::vector<Change> changes(const Config& before, const Config& now) {
  std::vector<Change> found;
  for (Difference& difference : differences(effective(before), effective(now))) {
    const bool by_mesh = difference.key == "balance.device_groups" && groups_follow_mesh(before, now);
    const KeyRole role = by_mesh ? KeyRole::reported : role_of(difference.key);
    if (role != KeyRole::operation) found.push_back({std::move(difference), role});
  }
  return found;
}

}  // namespace lyceum

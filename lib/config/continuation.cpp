#include "config/continuation.h"

#include <fmt/format.h>

#include <algorithm>
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
    const bool learnt = learns_rates(before.model.dropout), same_tensors = learnt == learns_rates(now.model.dropout);
    if (difference.key == "model.dropout" && learnt && same_tensors) continue;  // only initialises the rates
    if (difference.key == "model.dropout_kind" && same_tensors) role = KeyRole::tuning;
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

std::vector<Difference> changed_past(const Config& before, const Config& now, std::int64_t step) {
  std::vector<Difference> found;
  const int old_stage = stage_of_step(before, step), stage = stage_of_step(now, step);
  const auto first_step_text = [&](const Config& config, int own, int each) {
    return each <= own ? fmt::to_string(first_step_of(config, each)) : std::string();
  };
  for (int each = 2; each <= std::max(old_stage, stage); ++each) {
    Difference difference{fmt::format("stage.{}.from_step", each), first_step_text(before, old_stage, each),
                          first_step_text(now, stage, each)};
    if (difference.before != difference.after) found.push_back(std::move(difference));
  }
  if (!found.empty()) return found;  // otherwise both have the same stages up to this step
  const std::int64_t old_begin = schedule_of_stage(before, stage).begin, begin = schedule_of_stage(now, stage).begin;
  if (old_begin != begin) {
    found.push_back(
        {"first step of the learning-rate schedule", fmt::to_string(old_begin + 1), fmt::to_string(begin + 1)});
  }
  const std::vector<Change> present = changes(config_of_stage(before, stage), config_of_stage(now, stage));
  for (int each = 1; each < stage; ++each) {
    for (Change& change : changes(config_of_stage(before, each), config_of_stage(now, each))) {
      const bool in_present = std::ranges::any_of(present, [&](const Change& other) {
        return other.key == change.key && other.before == change.before && other.after == change.after;
      });
      if (in_present || change.role == KeyRole::reported) continue;
      if (each > 1) change.key = fmt::format("stage.{}.{}", each, change.key);
      found.push_back(std::move(change));
    }
  }
  return found;
}

}  // namespace lyceum

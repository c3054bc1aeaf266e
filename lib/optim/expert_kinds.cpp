#include "optim/expert_kinds.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>

#include "model/model_tensors.h"
#include "model/routing/expert_placements.h"
#include "model/sublayer_tensor.h"
#include "optim/weight_rule.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {

namespace {

/// Returns the update rules of the tensors of each expert, as a text that is equal for experts with equal rules.
/// `tensors`: those of the model.
std::vector<std::string> rules_of_experts(const Config& config, const Mixture& mixture, const RuleAssignment& rules,
                                          std::span<const ModelTensor> tensors) {
  std::vector<std::string> all(static_cast<std::size_t>(mixture.weighted()));
  const std::string prefix = half_prefix(block_prefix(config.model, mixture.id.layer), mixture.id.site) + "/experts/";
  for (const ModelTensor& tensor : tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    const auto expert = static_cast<std::size_t>(std::stoll(tensor.name.substr(prefix.size())));
    all.at(expert) += rules.rule_of(tensor.name, tensor.shape) == WeightRule::muon ? 'm' : 'a';
  }
  return all;
}

/// Returns a number for each expert with weights, see ExpertKinds::kinds. `rules`: see rules_of_experts().
std::vector<int> kinds_of_experts(const Config& config, const Mixture& mixture, std::span<const std::string> rules) {
  const auto groups = static_cast<int>(config.balance.device_groups);
  const std::vector<int> group =
      mixture.group_limit > 0 ? place_experts(config, mixture, groups, {}).owner : std::vector<int>(rules.size());
  std::map<std::tuple<std::int64_t, std::string, int>, int> numbers;
  std::vector<int> kinds;
  for (std::size_t e = 0; e < rules.size(); ++e) {
    const auto next = static_cast<int>(numbers.size());
    kinds.push_back(numbers.try_emplace({mixture.widths[e], rules[e], group[e]}, next).first->second);
  }
  return kinds;
}

}  // namespace

std::vector<ExpertKinds> expert_kinds(const Config& config) {
  const RuleAssignment rules(config.optim);
  // All experts have the same rules unless optim.adamw_only names tensors of some.
  const std::vector<ModelTensor> tensors =
      rules.adamw_only().empty() ? std::vector<ModelTensor>() : model_tensors(config);
  std::vector<ExpertKinds> all;
  for (const Mixture& mixture : mixtures_of(config)) {
    if (!mixture.placed()) continue;
    all.push_back({mixture, kinds_of_experts(config, mixture, rules_of_experts(config, mixture, rules, tensors))});
  }
  return all;
}

bool can_move_experts(const Config& config, std::span<const ExpertKinds> experts, int ranks) {
  return std::ranges::any_of(experts, [&](const ExpertKinds& each) {
    const Placement placement = place_experts(config, each.mixture, ranks, {});
    return !(with_two_exchanged(placement, each.kinds) == placement);
  });
}

}  // namespace lyceum

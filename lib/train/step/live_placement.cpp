#include "train/step/live_placement.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "kernels/digest.h"
#include "model/model_tensors.h"
#include "model/placed_experts.h"
#include "model/sublayer_tensor.h"
#include "optim/weight_rule.h"
#include "parallel/expert/rebalance.h"
#include "train/step/audit.h"

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

/// Returns a number for each expert with weights. Experts with equal numbers may exchange slots: they have one width
/// and the same update rules and, with moe.group_limit, are in the same group. `rules`: see rules_of_experts().
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

/// Returns the FLOPs of the experts with weights.
std::vector<double> costs_of(const Mixture& mixture, std::span<const ExpertLoad> load) {
  std::vector<double> costs = expert_costs(mixture, load);
  costs.resize(static_cast<std::size_t>(mixture.weighted()));
  return costs;
}

/// Returns a placement in which the first two experts of equal kind that are on different ranks have changed places;
/// `placement` itself if there are none.
Placement with_two_exchanged(Placement placement, std::span<const int> kinds) {
  for (std::size_t a = 0; a < placement.order.size(); ++a) {
    for (std::size_t b = a + 1; b < placement.order.size(); ++b) {
      const auto one = static_cast<std::size_t>(placement.order[a]),
                 other = static_cast<std::size_t>(placement.order[b]);
      if (kinds[one] != kinds[other] || placement.owner[one] == placement.owner[other]) continue;
      std::swap(placement.owner[one], placement.owner[other]);
      std::swap(placement.order[a], placement.order[b]);
      return placement;
    }
  }
  return placement;
}

}  // namespace

LivePlacement::LivePlacement(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero,
                             Optimizer& optimizer)
    : config_(config),
      setup_(setup),
      model_(model),
      zero_(zero),
      optimizer_(optimizer),
      mover_(setup.mesh, setup.stream) {
  const RuleAssignment rules(config.optim);
  // All experts have the same rules unless optim.adamw_only names tensors of some.
  const std::vector<ModelTensor> tensors =
      rules.adamw_only().empty() ? std::vector<ModelTensor>() : model_tensors(config);
  for (const Mixture& mixture : mixtures_of(config)) {
    if (!mixture.placed()) continue;
    placed_.push_back({mixture, kinds_of_experts(config, mixture, rules_of_experts(config, mixture, rules, tensors))});
  }
  const bool movable = std::ranges::any_of(placed_, [&](const Placed& each) {
    const Placement placement = place_experts(config, each.mixture, setup.mesh.expert.size(), {});
    return !(with_two_exchanged(placement, each.kinds) == placement);
  });
  require_usage(
      movable,
      "parallel.replace_every = {} with parallel.placement = {}: no two experts that may change places (equal "
      "width and update rules, and one group of moe.group_limit) are on different ranks: set "
      "parallel.replace_every = 0, or another placement",
      config.parallel.replace_every, name_of(config.parallel.placement));
}

bool LivePlacement::fits(std::span<const MixturePlacement> recorded,
                         std::span<const MixturePlacement> configured) const {
  if (recorded.size() != placed_.size() || configured.size() != placed_.size()) return false;
  for (std::size_t i = 0; i < placed_.size(); ++i) {
    const Placement &one = recorded[i].ranks, &other = configured[i].ranks;
    if (recorded[i].id != configured[i].id || one.first != other.first) return false;
    const auto kind = [&](std::int32_t expert) { return placed_[i].kinds[static_cast<std::size_t>(expert)]; };
    if (!std::ranges::equal(one.order, other.order, {}, kind, kind)) return false;
  }
  return true;
}

void LivePlacement::begin_at(std::span<const MixturePlacement> placement) {
  for (PlacedExperts* const experts : model_.placed_experts()) {
    experts->set_placement(std::ranges::find(placement, experts->id(), &MixturePlacement::id)->ranks);
  }
  optimizer_.slices_renamed();
}

/// Returns better() without asking other ranks.
std::optional<std::vector<MixturePlacement>> LivePlacement::decide(std::span<const MixturePlacement> present,
                                                                   std::span<const ExpertLoad> load) const {
  std::vector<MixturePlacement> all(present.begin(), present.end());
  bool moves = false;
  for (std::size_t i = 0; i < placed_.size(); ++i) {
    const std::vector<double> costs = costs_of(placed_[i].mixture, load);
    Placement found = rebalanced(all[i].ranks, costs, placed_[i].kinds);
    const double before = busiest_cost(all[i].ranks, costs), after = busiest_cost(found, costs);
    if (!(before - after > config_.parallel.replace_gain * before)) continue;
    all[i].ranks = std::move(found);
    moves = true;
  }
  return moves ? std::optional(std::move(all)) : std::nullopt;
}

/// Throws an Error on all ranks if they differ in these placements.
void LivePlacement::require_agreement(std::span<const MixturePlacement> present,
                                      std::span<const MixturePlacement> wanted) const {
  std::uint64_t digest = 0;
  for (const std::span<const MixturePlacement> placement : {present, wanted}) {
    for (const MixturePlacement& layer : placement) {
      const std::vector<std::int32_t>& order = layer.ranks.order;
      digest = 31 * digest + digest_of_bytes(order.data(), order.size() * sizeof(order[0]));
    }
    digest = 31 * digest + placement.size();
  }
  const auto own = static_cast<std::int64_t>(digest >> 1);
  std::array<std::int64_t, 2> most{own, -own};
  setup_.mesh.world.all_reduce(std::span(most), Reduction::max);
  require(most[0] == -most[1], "ranks would move different experts: possible memory fault; {}", advice_on_fresh_faults);
}

std::optional<std::vector<MixturePlacement>> LivePlacement::better(std::span<const MixturePlacement> present,
                                                                   std::span<const ExpertLoad> load) const {
  std::optional<std::vector<MixturePlacement>> wanted = decide(present, load);
  require_agreement(present, wanted ? std::span<const MixturePlacement>(*wanted) : std::span<const MixturePlacement>());
  return wanted;
}

double LivePlacement::imbalance(std::span<const MixturePlacement> placement, std::span<const ExpertLoad> load) const {
  double sum = 0;
  for (std::size_t i = 0; i < placed_.size(); ++i) {
    const std::vector<double> costs = costs_of(placed_[i].mixture, load);
    const double mean = std::reduce(costs.begin(), costs.end()) / placement[i].ranks.ranks();
    sum += mean > 0 ? busiest_cost(placement[i].ranks, costs) / mean : 1;
  }
  return sum / static_cast<double>(placed_.size());
}

PlacementChange LivePlacement::move(std::span<const MixturePlacement> present, std::span<const MixturePlacement> wanted,
                                    std::span<const ExpertLoad> load) {
  // New digests are made below, after which damage would no longer be noticed.
  const std::string damage = optimizer_.find_damage();
  require(damage.empty(), "{}: possible memory fault; {}", damage, advice_on_fresh_faults);
  PlacementChange change{.imbalance_before = imbalance(present, load), .imbalance_after = imbalance(wanted, load)};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::int64_t moved = std::ssize(moved_experts(present[i].ranks, wanted[i].ranks));
    change.experts += moved;
    change.layers += moved > 0 ? 1 : 0;
  }
  std::array<std::int64_t, 1> sent{-bytes_sent()};
  move_units(wanted);
  sent[0] += bytes_sent();
  setup_.mesh.world.all_reduce(std::span(sent));
  change.bytes = sent[0];
  return change;
}

/// Collective over the world. Moves the experts of this stage to `wanted`.
void LivePlacement::move_units(std::span<const MixturePlacement> wanted) {
  zero_.await_values();
  for (PlacedExperts* const experts : model_.placed_experts()) {
    const Placement& after = std::ranges::find(wanted, experts->id(), &MixturePlacement::id)->ranks;
    if (experts->placement() == after) continue;
    const std::vector<std::int64_t> elements = experts->slot_elements();
    mover_.move(optimizer_,
                {.unit = experts->unit(), .slot_elements = elements, .before = experts->placement(), .after = after});
    experts->set_placement(after);
  }
  optimizer_.slices_renamed();
  optimizer_.renew_digests();
  zero_.values_changed();
}

void LivePlacement::rehearse() {
  std::vector<MixturePlacement> wanted;
  for (PlacedExperts* const experts : model_.placed_experts()) {
    const auto placed = std::ranges::find(placed_, experts->id(), [](const Placed& each) { return each.mixture.id; });
    wanted.push_back({experts->id(), with_two_exchanged(experts->placement(), placed->kinds)});
  }
  require_agreement({}, {});
  move_units(wanted);
}

}  // namespace lyceum

#include "train/step/live_placement.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "kernels/digest.h"
#include "model/placed_experts.h"
#include "parallel/expert/rebalance.h"
#include "train/step/audit.h"

namespace lyceum {

LivePlacement::LivePlacement(const Config& config, const RunSetup& setup, StagedModel& model, Zero& zero,
                             Optimizer& optimizer)
    : config_(config),
      setup_(setup),
      model_(model),
      zero_(zero),
      optimizer_(optimizer),
      mover_(setup.mesh, setup.stream),
      placed_(expert_kinds(config)) {
  require_usage(
      can_move_experts(config, placed_, setup.mesh.expert.size()),
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
    const std::vector<double> costs = weighted_costs(placed_[i].mixture, load);
    std::optional<Placement> found =
        better_placement(all[i].ranks, costs, placed_[i].kinds, config_.parallel.replace_gain);
    if (!found) continue;
    all[i].ranks = std::move(*found);
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
    sum += busiest_over_mean(placement[i].ranks, weighted_costs(placed_[i].mixture, load));
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
    const auto placed =
        std::ranges::find(placed_, experts->id(), [](const ExpertKinds& each) { return each.mixture.id; });
    wanted.push_back({experts->id(), with_two_exchanged(experts->placement(), placed->kinds)});
  }
  require_agreement({}, {});
  move_units(wanted);
}

}  // namespace lyceum

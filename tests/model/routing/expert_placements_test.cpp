#include "model/routing/expert_placements.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "model/routing/routing_sums.h"

namespace lyceum {
namespace {

Config four_experts() {
  Config config;
  config.model.layers = 3;
  config.model.hidden = 10;
  config.model.first_dense_layers = 1;
  config.moe.experts = 4;
  config.moe.expert_sizes = {10, 30, 20, 20};
  config.balance.device_groups = 2;
  return config;
}

TEST(ExpertPlacements, DevicesDoNotDependOnTheRanks) {
  Config config = four_experts();
  config.parallel.placement = PlacementKind::pairs;
  const Mixture experts = routed_experts(config, 1).value();
  const ExpertPlacements alone = expert_placements(config, experts, 1, {}),
                         spread = expert_placements(config, experts, 2, {});
  EXPECT_EQ(alone.devices, spread.ranks);
  EXPECT_EQ(spread.devices, spread.ranks);
  EXPECT_EQ(alone.ranks.owner, (std::vector<int>{0, 0, 0, 0}));
}

/// No rank holds experts without weights; they are dealt to the groups of the device-level loss in turn. These groups
/// do not depend on the load.
TEST(ExpertPlacements, ExpertsWithoutWeightsAreOnNoRank) {
  Config config = four_experts();
  config.moe.zero_experts = 2;
  config.moe.copy_experts = 1;
  const Mixture experts = routed_experts(config, 1).value();
  const std::vector<ExpertLoad> load{{{1}, {1, 1, 10, 1, 50, 60, 70}}, {{2}, {1, 1, 10, 1, 50, 60, 70}}};
  for (const auto& [kind, owner] : {std::pair{PlacementKind::contiguous, std::vector<int>{0, 0, 1, 1}},
                                    {PlacementKind::pairs, std::vector<int>{0, 0, 1, 1}},
                                    {PlacementKind::cost, std::vector<int>{1, 1, 0, 1}}}) {
    config.parallel.placement = kind;
    const ExpertPlacements placements = expert_placements(config, experts, 2, load);
    EXPECT_EQ(placements.ranks.owner, owner) << name_of(kind);
    EXPECT_EQ(placements.devices.owner, (std::vector<int>{0, 0, 1, 1, 0, 1, 0})) << name_of(kind);
    EXPECT_EQ(logged_layers(config, place_all_experts(config, 2, load)).at(0).expert_rank,
              (std::vector<std::int64_t>{owner[0], owner[1], owner[2], owner[3], -1, -1, -1}))
        << name_of(kind);
  }
}

TEST(ExpertPlacements, RefuseTheLoadOfAnotherMixture) {
  Config config = four_experts();
  config.parallel.placement = PlacementKind::cost;
  const Mixture experts = routed_experts(config, 1).value();
  EXPECT_THROW(place_experts(config, experts, 2, std::vector<ExpertLoad>{{{1}, {1, 2, 3}}}), Error);
}

}  // namespace
}  // namespace lyceum

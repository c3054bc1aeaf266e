#include "train/run/placement_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "model/routing/routing_sums.h"
#include "train/run/run_state.h"

namespace lyceum {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

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

TEST(PlacementTable, TellsExpertsParametersAndShares) {
  const Config config = four_experts();
  EXPECT_THAT(
      placement_lines(config, place_all(config, 2, {}), {}),
      ElementsAre(
          "expert rank  experts  parameters  FLOPs / mean", "          0  0, 1         2.40 k         1.000",
          "          1  2, 3         2.40 k         1.000",
          "placement  contiguous, assuming an even load: the busiest of 2 expert ranks has 1.000 times the mean "
          "FLOPs, 1.000 in the worst of 2 layers"));
}

TEST(PlacementTable, CountsParametersInTheWidthThatExpertsWorkIn) {
  Config config = four_experts();
  config.moe.latent_hidden = 5;
  EXPECT_THAT(placement_lines(config, place_all(config, 2, {}), {})[1], HasSubstr("1.20 k"));
}

TEST(PlacementTable, GoesByMeasuredTokens) {
  Config config = four_experts();
  config.parallel.placement = PlacementKind::cost;
  // Layer 1: FLOPs 10, 30, 200, 20: the third alone. Layer 2: 400, 30, 20, 20.
  const std::vector<ExpertLoad> load{{{1}, {1, 1, 10, 1}}, {{2}, {40, 1, 1, 1}}};
  const std::vector<MixturePlacement> places = place_all(config, 2, load);
  ASSERT_THAT(places, SizeIs(2));
  EXPECT_EQ(places[0].id, MixtureId{1});
  EXPECT_EQ(places[0].ranks.owner, (std::vector<int>{1, 1, 0, 1}));
  EXPECT_EQ(places[1].ranks.owner, (std::vector<int>{0, 1, 1, 1}));
  const std::vector<std::string> lines = placement_lines(config, places, load);
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[1], HasSubstr("1 per layer"));
  EXPECT_THAT(lines[2], HasSubstr("3 per layer"));
  EXPECT_THAT(lines[3], HasSubstr("cost, by the measured load"));
  EXPECT_THAT(lines[3],
              HasSubstr("1.620 times the mean FLOPs, 1.702 in the worst of 2 layers"));  // 200 of 130, 400 of 235
}

TEST(PlacementTable, IsShortForManyRanksAndEmptyWithoutExperts) {
  Config config = four_experts();
  config.moe.experts = 40;
  config.moe.expert_sizes = std::vector<std::int64_t>(40, 3);
  EXPECT_THAT(placement_lines(config, place_all(config, 40, {}), {}), SizeIs(1));
  config.moe = {};
  EXPECT_THAT(placement_lines(config, place_all(config, 1, {}), {}), SizeIs(0));
}

TEST(ExpertPlaces, DevicesAreThoseOfThePlacementWhateverTheRanks) {
  Config config = four_experts();
  config.parallel.placement = PlacementKind::pairs;
  const Mixture experts = routed_experts(config, 1).value();
  const ExpertPlaces alone = expert_places(config, experts, 1, {}), spread = expert_places(config, experts, 2, {});
  EXPECT_EQ(alone.devices, spread.ranks);
  EXPECT_EQ(spread.devices, spread.ranks);
  EXPECT_EQ(alone.ranks.owner, (std::vector<int>{0, 0, 0, 0}));
}

/// No rank holds them; groups of the device-level loss have them one after the other.
TEST(ExpertPlaces, OfExpertsWithoutWeightsThereAreNone) {
  Config config = four_experts();
  config.moe.zero_experts = 2;
  config.moe.copy_experts = 1;
  const Mixture experts = routed_experts(config, 1).value();
  const std::vector<ExpertLoad> load{{{1}, {1, 1, 10, 1, 50, 60, 70}}, {{2}, {1, 1, 10, 1, 50, 60, 70}}};
  for (const auto& [kind, owner] : {std::pair{PlacementKind::contiguous, std::vector<int>{0, 0, 1, 1}},
                                    {PlacementKind::pairs, std::vector<int>{0, 0, 1, 1}},
                                    {PlacementKind::cost, std::vector<int>{1, 1, 0, 1}}}) {
    config.parallel.placement = kind;
    const ExpertPlaces places = expert_places(config, experts, 2, load);
    EXPECT_EQ(places.ranks.owner, owner) << name_of(kind);
    std::vector<int> group = owner;
    group.insert(group.end(), {0, 1, 0});
    EXPECT_EQ(places.devices.owner, group) << name_of(kind);
    EXPECT_EQ(logged_layers(config, place_all(config, 2, load)).at(0).expert_rank,
              (std::vector<std::int64_t>{owner[0], owner[1], owner[2], owner[3], -1, -1, -1}))
        << name_of(kind);
  }
  const std::vector<std::string> lines = placement_lines(config, place_all(config, 2, load), load);
  ASSERT_THAT(lines, SizeIs(4));  // FLOPs 10, 30, 200, 20: the third alone
  EXPECT_THAT(lines[1], AllOf(HasSubstr("2 "), HasSubstr("1.20 k"), HasSubstr("1.538")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("0, 1, 3"), HasSubstr("3.60 k"), HasSubstr("0.462")));
}

TEST(ExpertPlaces, RefuseTheLoadOfAnotherMixture) {
  Config config = four_experts();
  config.parallel.placement = PlacementKind::cost;
  const Mixture experts = routed_experts(config, 1).value();
  EXPECT_THROW(place_experts(config, experts, 2, std::vector<ExpertLoad>{{{1}, {1, 2, 3}}}), Error);
}

RoutingSums sums(std::vector<std::int64_t> counts) {
  return {.id = {1}, .top_k = 2, .experts = 3, .counts = std::move(counts), .probability = {1, 2, 3}};
}

TEST(RunStateLoad, ForgetsSlowlyAndComesBackFromACheckpoint) {
  RunState state;
  state.add_routing({sums({5, 0, 1, 2, 0, 4})}, 6);
  state.clear_routing();  // a record was written
  state.add_routing({sums({0, 0, 0, 0, 100, 0})}, 6);
  state.placement = {{{1}, Placement::of_owners({1, 0, 1}, 2)}};
  const std::vector<ExpertLoad> expected{{{1}, {0.99 * 7, 100, 0.99 * 5}}};
  EXPECT_EQ(state.load, expected);
  EXPECT_EQ(RunState::load_of(state.text()), expected);
  EXPECT_EQ(RunState::placement_of(state.text()).at(0).ranks.owner, (std::vector<int>{1, 0, 1}));
  RunState back;
  back.restore(state.text(), {sums({0, 0, 0, 0, 0, 0})});
  EXPECT_EQ(back.load, expected);
}

TEST(RunStateLoad, RefusesWhatIsNoLoad) {
  EXPECT_TRUE(RunState::load_of("{}").empty());  // of an older checkpoint
  EXPECT_THROW(RunState::load_of(R"({"expert_load": [{"layer": 1, "tokens": [1, -2]}]})"), Error);
  EXPECT_THROW(RunState::load_of(R"({"expert_load": [{"layer": 1, "tokens": [null]}]})"), Error);
  EXPECT_THROW(RunState::load_of(R"({"expert_load": [{"tokens": [1]}]})"), Error);
  EXPECT_THROW(RunState::load_of("not JSON"), Error);
}

}  // namespace
}  // namespace lyceum

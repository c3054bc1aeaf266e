#include "train/run/run_state.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "model/routing/dead_experts.h"
#include "model/routing/routing_sums.h"

namespace lyceum {
namespace {

RoutingSums sums(std::vector<std::int64_t> counts) {
  return {.id = {1}, .top_k = 2, .experts = 3, .counts = std::move(counts), .probability = {1, 2, 3}};
}

TEST(RunState, ForgetsSlowlyAndComesBackFromACheckpoint) {
  RunState state;
  state.add_load({loads_of(sums({5, 0, 1, 2, 0, 4}))});
  state.clear_routing();  // as after a record was written
  state.add_load({loads_of(sums({0, 0, 0, 0, 100, 0}))});
  state.placement = {{{1}, Placement::of_owners({1, 0, 1}, 2)}};
  const std::vector<ExpertLoad> expected{{{1}, {0.99 * 7, 100, 0.99 * 5}}};
  EXPECT_EQ(state.load, expected);
  EXPECT_EQ(RunState::load_of(state.text()), expected);
  EXPECT_EQ(RunState::placement_of(state.text()).at(0).ranks.owner, (std::vector<int>{1, 0, 1}));
  RunState back;
  back.restore(state.text(), {sums({0, 0, 0, 0, 0, 0})});
  EXPECT_EQ(back.load, expected);
}

TEST(RunState, KeepsTheOrderOfExpertsOnTheirRanks) {
  RunState state;
  Placement moved = Placement::of_owners({0, 1, 1, 0}, 2);
  EXPECT_EQ(moved.order, (std::vector<std::int32_t>{0, 3, 1, 2}));
  moved.order = {3, 0, 1, 2};
  state.placement = {{{1}, moved}, {{2}, Placement::of_owners({0, 0, 1, 1}, 2)}};
  const std::vector<MixturePlacement> back = RunState::placement_of(state.text());
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].ranks, moved);
  EXPECT_EQ(back[1].ranks, state.placement[1].ranks);
  for (const char* order : {"[3, 0, 1]", "[0, 1, 2, 3]", "[3, 3, 1, 2]", "[3, 0, 1, 4]", "[3, 0, 1, -1]"}) {
    const std::string text =
        std::string(R"({"placement": [{"layer": 1, "rank_of_expert": [0, 1, 1, 0], "order": )") + order + "}]}";
    EXPECT_THROW(RunState::placement_of(text), Error) << order;
  }
}

TEST(RunState, RefusesWhatIsNoLoad) {
  EXPECT_TRUE(RunState::load_of("{}").empty());  // an older checkpoint
  EXPECT_THROW(RunState::load_of(R"({"expert_load": [{"layer": 1, "tokens": [1, -2]}]})"), Error);
  EXPECT_THROW(RunState::load_of(R"({"expert_load": [{"layer": 1, "tokens": [null]}]})"), Error);
  EXPECT_THROW(RunState::load_of(R"({"expert_load": [{"tokens": [1]}]})"), Error);
  EXPECT_THROW(RunState::load_of("not JSON"), Error);
}

RoutingSums one_choice(std::int64_t layer, std::vector<std::int64_t> counts) {
  const auto experts = static_cast<std::int64_t>(counts.size());
  return {.id = {layer}, .top_k = 1, .experts = experts, .counts = std::move(counts), .probability = {0, 0, 0, 0}};
}

TEST(RunState, KeepsWhereItsDataBegin) {
  RunState state;
  state.samples = 100;
  EXPECT_EQ(state.tokens(16), 1600);
  EXPECT_EQ(state.text().find("data_begin"), std::string::npos) << "in a run of one stage";
  state.data_begin = {.samples = 60, .tokens = 480, .sources = {{"a b", 45, 50}, {"c", 15, 7}}};
  state.data_begin.sources.push_back({.prefix = "d", .samples = 3, .per_pass = 4, .fingerprint = "5e", .order = 2});
  EXPECT_EQ(state.tokens(16), 480 + 40 * 16);
  RunState back;
  back.restore(state.text(), {});
  EXPECT_EQ(back.data_begin, state.data_begin);
  EXPECT_EQ(RunState::data_begin_of(state.text()), state.data_begin);
  state.samples = 59;
  EXPECT_THROW(back.restore(state.text(), {}), Error) << "fewer samples than at the beginning";
  state.samples = 100;
  state.data_begin.sources[0].per_pass = 0;
  EXPECT_THROW(back.restore(state.text(), {}), Error) << "a source without samples";
}

TEST(RunState, KeepsIdleExpertsOfTheSameMixtures) {
  RunState state;
  add_step(state.idle, {one_choice(1, {1, 0, 0, 0})});
  RunState back;
  back.restore(state.text(), {one_choice(1, {0, 0, 0, 0})});
  EXPECT_EQ(back.idle, state.idle);
  back.restore(state.text(), {one_choice(2, {0, 0, 0, 0})});
  EXPECT_TRUE(back.idle.empty()) << "of another mixture";
}

TEST(RunState, KeepsReplicasSinceTheLastRecord) {
  const ReplicaCounts counts{.replicas = {1, 0, 2, 0}, .tokens = {7, 0, 9, 0}, .kept = 1, .sent = 4, .bytes = 640};
  RunState state;
  state.replicas = {{{1}, counts}};
  state.unwritten_routing = {
      {4, {{.id = {1}, .top_k = 1, .experts = 4, .counts = {1, 2, 3, 4}, .mean_probability = {1, 1, 1, 1}}}}};
  state.unwritten_routing[0].layers[0].replicas = counts;
  RunState back;
  const std::vector<RoutingSums> expected{one_choice(1, {0, 0, 0, 0})};
  back.restore(state.text(), expected);
  EXPECT_EQ(back.replicas, state.replicas);
  EXPECT_EQ(back.unwritten_routing.at(0).layers.at(0).replicas, counts);
  EXPECT_EQ(back.text(), state.text());
  add(back.replicas, {{{1}, counts}});
  EXPECT_EQ(back.replicas.at(0).counts.tokens, (std::vector<std::int64_t>{14, 0, 18, 0}));
  EXPECT_EQ(back.replicas.at(0).counts.bytes, 1280);
  back.clear_routing();
  EXPECT_TRUE(back.replicas.empty());
  for (const ReplicaSums& wrong : {ReplicaSums{{2}, counts}, ReplicaSums{{1}, {.replicas = {1, 2}, .tokens = {1, 2}}},
                                   ReplicaSums{{1}, {.replicas = {1, 0, -1, 0}, .tokens = {0, 0, 0, 0}}},
                                   ReplicaSums{{1}, {.replicas = {0, 0, 0, 0}, .tokens = {0, 0, 0, 0}, .kept = -1}}}) {
    state.replicas = {wrong};
    EXPECT_THROW(back.restore(state.text(), expected), Error) << state.text();
  }
}

TEST(RunState, KeepsRecentStepsInAllBits) {
  RunState state;
  state.outliers = 5;
  state.outliers_in_a_row = 2;
  state.recent.losses = {1.0 / 3, 0.1 + 0.2, 4};
  state.recent.norms = {1e-300, 2.0 / 7, 5};
  RunState back;
  back.restore(state.text(), {});
  EXPECT_EQ(back.recent, state.recent);
  EXPECT_EQ(back.outliers, 5);
  EXPECT_EQ(back.outliers_in_a_row, 2);
  state.forget_losses();
  back.restore(state.text(), {});
  EXPECT_EQ(back.recent, RecentSteps{});
}

TEST(RunState, RefusesRecentStepsThatAreNotNumbersOfEquallyManySteps) {
  RunState state;
  state.recent = {.losses = {1, 2}, .norms = {3, 4}};
  const std::string text = state.text(), norms = "\"recent_norms\":[";
  ASSERT_NE(text.find(norms), std::string::npos) << text;
  for (const std::string instead : {"5,", "null,", "\"a\","}) {
    std::string other = text;
    other.insert(text.find(norms) + norms.size(), instead);
    RunState back;
    EXPECT_THROW(back.restore(other, {}), Error) << other;
  }
}

}  // namespace
}  // namespace lyceum

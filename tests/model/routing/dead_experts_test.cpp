#include "model/routing/dead_experts.h"

#include <gtest/gtest.h>

#include "model/routing/routing_sums.h"

namespace lyceum {
namespace {

RoutingSums one_choice(std::int64_t layer, std::vector<std::int64_t> counts) {
  const auto experts = static_cast<std::int64_t>(counts.size());
  return {.id = {layer}, .top_k = 1, .experts = experts, .counts = std::move(counts), .probability = {0, 0, 0, 0}};
}

using Lines = std::vector<std::string>;

TEST(DeadExperts, AreReportedOnceAndWhenTheyComeBack) {
  std::vector<IdleExperts> idle;
  DeadExperts dead(2);
  add_step(idle, {one_choice(1, {1, 0, 0, 0}), one_choice(3, {1, 1, 1, 1})});
  EXPECT_EQ(dead.news(1, idle), Lines{});
  EXPECT_EQ(dead.count(idle), 0);
  add_step(idle, {one_choice(1, {1, 0, 0, 5}), one_choice(3, {1, 1, 1, 1})});
  EXPECT_EQ(dead.news(2, idle),
            Lines{"warning: step 2: dead experts, no token for 2 steps: layer 1: 1, 2 (2 of 4 dead)"});
  EXPECT_EQ(dead.count(idle), 2);
  add_step(idle, {one_choice(1, {1, 0, 0, 5}), one_choice(3, {0, 1, 1, 1})});
  EXPECT_EQ(dead.news(3, idle), Lines{}) << "reported once";
  add_step(idle, {one_choice(1, {1, 0, 9, 5}), one_choice(3, {0, 1, 1, 1})});
  EXPECT_EQ(dead.news(4, idle), (Lines{"warning: step 4: dead experts, no token for 2 steps: layer 3: 0 (1 of 4 dead)",
                                       "step 4: experts that receive tokens again: layer 1: 2 (1 of 4 dead)"}));
  EXPECT_EQ(dead.count(idle), 2);
}

TEST(DeadExperts, CountTheirChoicesTogetherAndNeverDieWithoutAWindow) {
  std::vector<IdleExperts> idle;
  const RoutingSums two{.id = {}, .top_k = 2, .experts = 3, .counts = {4, 0, 0, 0, 4, 0}, .probability = {1, 1, 1}};
  for (int step = 0; step < 3; ++step) add_step(idle, {two});
  EXPECT_EQ(idle, (std::vector<IdleExperts>{{.id = {}, .steps = {0, 0, 3}}}));
  DeadExperts never(0);
  EXPECT_EQ(never.count(idle), 0);
  EXPECT_TRUE(never.news(3, idle).empty());
  EXPECT_EQ(DeadExperts(3).count(idle), 1);
}

TEST(DeadExperts, ManyLayersAreOneLine) {
  std::vector<RoutingSums> sums;
  for (std::int64_t layer = 0; layer < 9; ++layer) sums.push_back(one_choice(layer, {0, 1, 0, 0}));
  std::vector<IdleExperts> idle;
  add_step(idle, sums);
  const Lines lines = DeadExperts(1).news(1, idle);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("layer 0: 0, 2, 3 (3 of 4 dead)"), std::string::npos) << lines[0];
  EXPECT_TRUE(lines[0].ends_with("; and in 5 more layers")) << lines[0];
}

}  // namespace
}  // namespace lyceum

#include <gtest/gtest.h>

#include <cmath>

#include "model/routing/dead_experts.h"
#include "model/routing/mixture.h"
#include "model/routing/routing_statistics.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

Config cut_config(bool attention, bool ffn) {
  Config config = tiny_config();
  config.moe = {};
  config.balance = {};
  config.sub_dimensions = {.attention = attention ? 4 : 0,
                           .ffn = ffn ? 6 : 0,
                           .active = attention ? 4 : 6,
                           .gates = SubDimensionGates::ones,
                           .fusion_width = 0};
  return config;
}

/// A model with all sub-dimensions active, gates of 1 and no fusion equals the dense model with the same initial
/// weights.
TEST(SubDimensions, WithAllPiecesOnAreTheDenseModel) {
  Config dense = tiny_config();
  dense.moe = {};
  dense.balance = {};
  const double expected = train(dense, ProcessGroup::self(), 1).steps.front().loss;
  for (const auto& [attention, ffn] : {std::pair{true, false}, {false, true}}) {
    const Config config = cut_config(attention, ffn);
    expect_close(train(config, ProcessGroup::self(), 1).steps.front().loss, expected, 1e-7, "loss");
  }
}

/// The fusion is the identity before training.
TEST(SubDimensions, BeginWithoutAnyFusion) {
  Config config = cut_config(true, false);
  const double expected = train(config, ProcessGroup::self(), 1).steps.front().loss;
  for (const std::int64_t width : {-1, 2, 12, 24}) {
    config.sub_dimensions.fusion_width = width;
    const std::vector<StepResult> steps = train(config, ProcessGroup::self(), 2).steps;
    expect_close(steps[0].loss, expected, 1e-7, "loss");
    EXPECT_NE(steps[1].weight_norm, steps[0].weight_norm);
  }
}

/// A router chooses among the sub-dimensions that are not always active.
TEST(SubDimensions, CountChoicesOfThePiecesThatMayBeOff) {
  Config config = tiny_config();
  config.moe = {};
  config.balance = {};
  config.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 1};
  const std::vector<RoutingSums> routing = train(config, ProcessGroup::self(), 1).steps.front().routing;
  ASSERT_EQ(routing.size(), 6u);
  for (const RoutingSums& layer : routing) {
    EXPECT_EQ(layer.experts, layer.id.site == Site::attention ? 4 : 8);
    EXPECT_EQ(layer.top_k, 2);
    std::int64_t chosen = 0;
    for (std::size_t i = 0; i < layer.counts.size(); ++i) {
      chosen += layer.counts[i];
      if (i % static_cast<std::size_t>(layer.experts) == 0) {
        EXPECT_EQ(layer.counts[i], 0) << "always on";
      }
    }
    EXPECT_EQ(chosen, 2 * config.batch.global * config.batch.seq_len);
  }
}

/// Sub-dimensions that are always active do not count as idle, and have no part in the load imbalance.
TEST(SubDimensions, ThatAreAlwaysOnAreNotDead) {
  Config config = tiny_config();
  config.moe = {};
  config.sub_dimensions = {.attention = 4, .active = 2, .shared = 1};
  RoutingSums sums = no_routing(*sub_dimensions_of(config, {0, Site::attention}));
  sums.counts = {0, 5, 5, 5};
  EXPECT_EQ(imbalance(sums), 1);
  std::vector<IdleExperts> idle;
  for (int step = 0; step < 9; ++step) add_step(idle, {sums});
  EXPECT_EQ(idle.front().steps, (std::vector<std::int64_t>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace lyceum

#include <gtest/gtest.h>

#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

constexpr int placement_steps = 4;
constexpr std::array placements{PlacementKind::contiguous, PlacementKind::pairs, PlacementKind::cost};

/// A model whose experts form pairs of width 32, not adjacent in the list. Its device-level loss has four devices on
/// any mesh.
Config uneven_config() {
  Config config = tiny_config();
  config.moe.experts = 16;
  config.moe.expert_sizes = {8, 31, 16, 5, 24, 9, 30, 13, 16, 1, 27, 16, 23, 2, 19, 16};
  config.balance.device_groups = 4;
  return config;
}

std::vector<int> expert_ranks() {
  std::vector<int> degrees;
  for (const int ep : {1, 2, 4, 8}) {
    if (world_size() % ep == 0) degrees.push_back(ep);
  }
  return degrees;
}

TEST(ExpertPlacement, EveryPlacementIsTheSerialRun) {
  for (const PlacementKind kind : placements) {
    Config config = uneven_config();
    config.parallel.placement = kind;
    const Trajectory serial = train(config, ProcessGroup::self(), placement_steps);
    EXPECT_LT(serial.steps.back().loss, serial.steps.front().loss);
    for (const int ep : expert_ranks()) {
      config.parallel.expert = ep;
      const Trajectory run = train(config, test_world(), placement_steps);
      expect_same_run(run, serial, name_of(kind) + " ep " + std::to_string(ep));
    }
  }
}

/// The arithmetic of an expert does not depend on its rank. Only two sums do: over the expert outputs of a token, if it
/// has several, and the norm over all parameters.
TEST(ExpertPlacement, GivesTheSameBitsWhereATokenHasOneExpertAndNothingIsClipped) {
  Config config = uneven_config();
  config.moe.top_k = 1;
  config.parallel.expert = world_size();
  config.optim.clip_norm = 0;
  config.balance.device = 0;  // the groups of this loss depend on the placement
  const Trajectory contiguous = train(config, test_world(), placement_steps);
  for (const PlacementKind kind : placements) {
    config.parallel.placement = kind;
    const Trajectory run = train(config, test_world(), placement_steps);
    for (std::size_t s = 0; s < placement_steps; ++s)
      EXPECT_EQ(run.steps[s].loss, contiguous.steps[s].loss) << name_of(kind) << ' ' << s;
  }
}

TEST(ExpertPlacement, GoesWithTensorParallelExperts) {
  const int world = world_size();
  for (const PlacementKind kind : placements) {
    Config config = uneven_config();
    config.moe.expert_sizes = {8,  29, 16, 5,  24, 9, 30, 13,
                               16, 3,  27, 16, 23, 2, 19, 16};  // two ranks hold a part of each expert
    config.parallel.placement = kind;
    config.balance.device_groups = 2;
    const Trajectory serial = train(config, ProcessGroup::self(), 3);
    config.parallel.tensor = config.parallel.expert_tensor = std::min(world, 2);
    config.parallel.expert = std::max(world / 2, 1);
    config.parallel.sequence = true;
    expect_same_run(train(config, test_world(), 3), serial, name_of(kind));
  }
}

/// Ranks of one expert group have different numbers of elements. Ranks that hold copies, over which ZeRO shards, have
/// equally many.
TEST(ExpertPlacement, GoesWithZeroAndThePipeline) {
  const int world = world_size();
  for (const PlacementKind kind : placements) {
    Config config = uneven_config();
    config.parallel.placement = kind;
    const Trajectory serial = train(config, ProcessGroup::self(), 3);
    config.parallel.zero = 3;
    config.parallel.expert = std::max(world / 2, 1);
    expect_same_run(train(config, test_world(), 3), serial, "ZeRO 3, " + name_of(kind));
    if (world < 4) continue;
    config.parallel.zero = 1;
    config.parallel.pipeline = 2;
    config.parallel.expert = world / 2;
    expect_same_run(train(config, test_world(), 3), serial, "pipeline, " + name_of(kind));
  }
}

TEST(ExpertPlacement, IdleExpertsHoldNobodyUp) {
  Config config = uneven_config();
  config.batch = {.global = 8, .micro = 1, .seq_len = 1};
  config.moe.top_k = 1;
  // The gradient of queries is zero up to rounding with one token per sequence. A larger eps keeps AdamW from turning
  // the rounding errors into steps.
  config.optim.eps = 1e-5;
  config.parallel.placement = PlacementKind::pairs;
  const Trajectory serial = train(config, ProcessGroup::self(), 3);
  const std::vector<std::int64_t>& counts = serial.steps[0].routing[0].counts;
  ASSERT_GE(std::count(counts.begin(), counts.end(), 0), 8);
  config.parallel.expert = world_size();
  expect_same_steps(train(config, test_world(), 3).steps, serial.steps, "idle experts");
}

TEST(ExpertPlacement, AStepThatIsNotFiniteIsLeftOutOnAllRanks) {
  Config config = uneven_config();
  config.parallel.placement = PlacementKind::cost;
  config.parallel.expert = world_size();
  config.optim.schedule = LearningRateSchedule::constant;
  config.optim.warmup_steps = 0;
  config.optim.lr = 1e30;  // after the first step, products of weights overflow
  const Trajectory run = train(config, test_world(), 2);
  EXPECT_FALSE(run.steps[0].skipped);
  EXPECT_TRUE(run.steps[1].skipped);
}

}  // namespace
}  // namespace lyceum

#include "train/schedule.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lyceum {
namespace {

TEST(LearningRate, WarmsUpLinearly) {
  const OptimConfig optim{.lr = 1.0, .schedule = "constant", .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 0, 100), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 3, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 99, 100), 1.0);
}

TEST(LearningRate, StepsDownAtEightyAndNinetyPercent) {
  const OptimConfig optim{.lr = 1.0, .schedule = "step", .warmup_steps = 2};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 79, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 80, 100), 0.316);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 89, 100), 0.316);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 90, 100), 0.316 * 0.316);
}

TEST(LearningRate, FollowsACosineToTheFloor) {
  const OptimConfig optim{.lr = 1.0, .min_lr = 0.1, .schedule = "cosine", .warmup_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 10, 111), 1.0);
  EXPECT_NEAR(learning_rate(optim, 60, 111), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 110, 111), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 500, 111), 0.1);
}

TEST(LearningRate, StaysThenDecaysStraight) {
  OptimConfig optim{.lr = 1.0, .min_lr = 0.1, .schedule = "wsd", .warmup_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 4, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 10, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 89, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 94, 100), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 99, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1000, 100), 0.1);
  optim.decay_steps = 50;
  EXPECT_DOUBLE_EQ(learning_rate(optim, 49, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 74, 100), 0.55);
}

TEST(LearningRate, EndsAtTheFloorWhenTheRunIsAllWarmUp) {
  const OptimConfig optim{.lr = 1.0, .min_lr = 0.1, .schedule = "cosine", .warmup_steps = 1};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1, 2), 0.1);
  EXPECT_THROW(learning_rate({.schedule = "sine"}, 1, 2), Error);
}

}  // namespace
}  // namespace lyceum

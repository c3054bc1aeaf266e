#include "train/schedule.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"

namespace lyceum {
namespace {

TEST(ChoicesOfStep, GoEvenlyFromTheFirstStepToTheLast) {
  const auto all = [](std::int64_t start, std::int64_t top_k, std::int64_t steps) {
    MoeConfig moe;
    moe.top_k_start = start;
    moe.top_k = top_k;
    std::vector<std::int64_t> choices;
    for (std::int64_t i = 0; i < steps + 2; ++i) choices.push_back(choices_of_step(moe, i, steps));
    return choices;
  };
  using Choices = std::vector<std::int64_t>;
  EXPECT_EQ(all(0, 3, 2), (Choices{3, 3, 3, 3}));
  EXPECT_EQ(all(3, 3, 2), (Choices{3, 3, 3, 3}));
  EXPECT_EQ(all(1, 2, 3), (Choices{1, 2, 2, 2, 2}));  // half up
  EXPECT_EQ(all(2, 6, 5), (Choices{2, 3, 4, 5, 6, 6, 6}));
  EXPECT_EQ(all(1, 3, 6), (Choices{1, 1, 2, 2, 3, 3, 3, 3}));  // 1, 1.4, 1.8, 2.2, 2.6, 3
  EXPECT_EQ(all(2, 4, 1).front(), 2) << "the first step is the last";
}

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

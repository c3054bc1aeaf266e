#include "train/step/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "config/binding.h"
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
  EXPECT_EQ(all(1, 2, 3), (Choices{1, 2, 2, 2, 2}));  // 1.5 is rounded up
  EXPECT_EQ(all(2, 6, 5), (Choices{2, 3, 4, 5, 6, 6, 6}));
  EXPECT_EQ(all(1, 3, 6), (Choices{1, 1, 2, 2, 3, 3, 3, 3}));  // 1, 1.4, 1.8, 2.2, 2.6, 3
  EXPECT_EQ(all(2, 4, 1).front(), 2) << "the first step is the last";
}

/// Returns the warnings about a schedule, whose length is that of the run unless `schedule_steps` is given.
std::vector<std::string> doubts(const OptimConfig& optim, std::int64_t steps, std::int64_t schedule_steps = 0,
                                std::int64_t first = 0) {
  return schedule_warnings(optim, steps, schedule_steps > 0 ? schedule_steps : steps, first);
}

constexpr std::array schedules{LearningRateSchedule::step, LearningRateSchedule::cosine, LearningRateSchedule::wsd,
                               LearningRateSchedule::constant};

TEST(ScheduleWarnings, AreOfRatesThatAreNotReached) {
  const auto expect = [](const std::vector<std::string>& found, const char* text) {
    ASSERT_EQ(found.size(), 1u) << text << testing::PrintToString(found);
    EXPECT_THAT(found[0], testing::HasSubstr(text));
  };
  for (const LearningRateSchedule schedule : schedules) {
    const OptimConfig optim{.lr = 1, .schedule = schedule, .warmup_steps = 2000};
    expect(
        doubts(optim, 1000),
        "optim.warmup_steps = 2000 is more than run.steps = 1000: the learning rate ends at 0.5, below optim.lr = 1");
    EXPECT_EQ(learning_rate(optim, 999, 1000), 0.5);
  }
  const OptimConfig warm{.lr = 1, .schedule = LearningRateSchedule::cosine, .warmup_steps = 100};
  expect(doubts(warm, 100), "optim.warmup_steps = 100 fills the schedule of 100 steps: the learning rate falls to 0 ");
  expect(doubts({.lr = 1, .min_lr = 0.1, .schedule = LearningRateSchedule::cosine, .warmup_steps = 100}, 1000, 50),
         "fills the schedule of 50 steps: the learning rate falls to 0.1 ");
  expect(doubts({.lr = 1, .schedule = LearningRateSchedule::wsd, .warmup_steps = 100, .decay_steps = 950}, 1000),
         "the decay of 950 steps (optim.decay_steps) begins before the warm-up of 100 steps ends");
  expect(doubts({.lr = 1, .schedule = LearningRateSchedule::step, .warmup_steps = 900}, 1000),
         "optim.warmup_steps = 900 ends after 80 % of the schedule of 1000 steps");
  expect(doubts({.lr = 1, .schedule = LearningRateSchedule::cosine}, 1000, 500),
         "the learning rate is 0 from step 500 on");
  EXPECT_EQ(learning_rate({.lr = 1, .schedule = LearningRateSchedule::cosine}, 499, 500), 0);
  expect(doubts({.lr = 1, .schedule = LearningRateSchedule::cosine, .decay_steps = 5}, 1000),
         "optim.decay_steps = 5 has no effect");
  expect(doubts({.lr = 1, .min_lr = 0.1, .schedule = LearningRateSchedule::constant}, 1000),
         "optim.min_lr = 0.1 has no effect");
  expect(doubts({.lr = 1, .schedule = LearningRateSchedule::constant, .warmup_from = 0.1}, 1000),
         "optim.warmup_from = 0.1 has no effect with optim.warmup_steps = 0");
}

TEST(ScheduleWarnings, AreNoneOfUsualSchedules) {
  for (const LearningRateSchedule schedule : schedules) {
    for (const std::int64_t warmup : {0, 1, 100, 800}) {
      EXPECT_THAT(doubts({.lr = 1, .schedule = schedule, .warmup_steps = warmup}, 1000), testing::IsEmpty())
          << name_of(schedule);
    }
    EXPECT_THAT(doubts({.lr = 0, .schedule = schedule, .warmup_steps = 2000}, 1000), testing::IsEmpty());
    // A resumed run after the warm-up, and after the schedule, of which choose_schedule_length() warns.
    EXPECT_THAT(doubts({.lr = 1, .schedule = schedule, .warmup_steps = 50}, 2000, 1000, 1500), testing::IsEmpty());
  }
  EXPECT_THAT(doubts({.lr = 1, .schedule = LearningRateSchedule::wsd}, 1000, 100000), testing::IsEmpty());
  EXPECT_THAT(doubts({.lr = 1, .schedule = LearningRateSchedule::step}, 1000, 500), testing::IsEmpty())
      << "a tenth of the rate is left";
}

TEST(ScheduleWarnings, AreNoneOfTheShippedConfigurations) {
  namespace fs = std::filesystem;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(LYCEUM_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".ini" || entry.path().parent_path().filename() == "clusters") continue;
    const Config config = load_config(std::vector<std::string>{"--config", entry.path().string()}).config;
    EXPECT_THAT(doubts(config.optim, config.run.steps, config.optim.schedule_steps), testing::IsEmpty())
        << entry.path();
    ++files;
  }
  EXPECT_GT(files, 10);
}

TEST(LearningRate, WarmsUpLinearly) {
  const OptimConfig optim{.lr = 1.0, .schedule = LearningRateSchedule::constant, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 0, 100), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 3, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 99, 100), 1.0);
}

/// MoDSE: from 2e-7 over 2000 steps, here to 3e-4, by hand.
TEST(LearningRate, WarmsUpFromAGivenRate) {
  OptimConfig optim{.lr = 3e-4, .schedule = LearningRateSchedule::constant, .warmup_steps = 2000, .warmup_from = 2e-7};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 0, 25000), 2e-7);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1, 25000), 3.499e-7);    // 2e-7 + 2.998e-4 / 2000
  EXPECT_DOUBLE_EQ(learning_rate(optim, 500, 25000), 7.515e-5);  // 2e-7 + 2.998e-4 / 4
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1000, 25000), 1.501e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1999, 25000), 2.998501e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 2000, 25000), 3e-4);
  optim.schedule = LearningRateSchedule::cosine;
  optim.min_lr = 3e-5;
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1000, 25000), 1.501e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 2000, 25000), 3e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 24999, 25000), 3e-5);
  optim = {.lr = 1, .schedule = LearningRateSchedule::wsd, .warmup_steps = 4, .warmup_from = 1};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 0, 100), 1);  // no rise at all
  EXPECT_DOUBLE_EQ(learning_rate(optim, 3, 100), 1);
}

TEST(LearningRate, StepsDownAtEightyAndNinetyPercent) {
  const OptimConfig optim{.lr = 1.0, .schedule = LearningRateSchedule::step, .warmup_steps = 2};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 79, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 80, 100), 0.316);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 89, 100), 0.316);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 90, 100), 0.316 * 0.316);
}

TEST(LearningRate, FollowsACosineToTheFloor) {
  const OptimConfig optim{.lr = 1.0, .min_lr = 0.1, .schedule = LearningRateSchedule::cosine, .warmup_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 10, 111), 1.0);
  EXPECT_NEAR(learning_rate(optim, 60, 111), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 110, 111), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(optim, 500, 111), 0.1);
}

TEST(LearningRate, StaysThenDecaysStraight) {
  OptimConfig optim{.lr = 1.0, .min_lr = 0.1, .schedule = LearningRateSchedule::wsd, .warmup_steps = 10};
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
  const OptimConfig optim{.lr = 1.0, .min_lr = 0.1, .schedule = LearningRateSchedule::cosine, .warmup_steps = 1};
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1, 2), 0.1);
}

TEST(ScheduleWarnings, AreGivenOncePerSchedule) {
  Config config;
  config.run.steps = 100;
  config.optim.schedule = LearningRateSchedule::constant;
  config.optim.decay_steps = 3;  // without effect
  config.training_stages = {{.from_step = 21, .values = {{"optim.lr", "0.1"}}},
                            {.from_step = 41, .values = {{"optim.schedule", "cosine"}, {"optim.warmup_steps", "70"}}},
                            {.from_step = 61, .values = {{"batch.global", "16"}}}};
  const std::vector<std::string> all = schedule_warnings_of_stages(config, 0, 40);
  ASSERT_EQ(all.size(), 2u) << testing::PrintToString(all);
  EXPECT_THAT(all[0], testing::HasSubstr("optim.decay_steps = 3 has no effect"));
  EXPECT_THAT(all[1],
              testing::StartsWith("stage 3: stage.3.optim.warmup_steps = 70 is more than the number of steps of "
                                  "its stages = 60: "));
  EXPECT_EQ(schedule_warnings_of_stages(config, 25, 40).size(), 2u);
  EXPECT_EQ(schedule_warnings_of_stages(config, 40, 40).size(), 1u);
  EXPECT_EQ(schedule_warnings_of_stages(config, 70, 60).size(), 1u);
}

}  // namespace
}  // namespace lyceum

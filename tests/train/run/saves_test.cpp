#include "train/run/saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lyceum {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

TEST(SaveTimer, IsDueOnceTheMinutesHavePassed) {
  Clock::time_point now{};
  SaveTimer timer(10, [&] { return now; });
  now += minutes(10) - seconds(1);
  EXPECT_FALSE(timer.is_due());
  now += seconds(1);
  EXPECT_TRUE(timer.is_due());
  EXPECT_TRUE(timer.is_due()) << "until a checkpoint is saved";
  timer.restart();
  EXPECT_FALSE(timer.is_due());
  now += minutes(10);
  EXPECT_TRUE(timer.is_due());
}

TEST(SaveTimer, TakesFractionsAndZero) {
  Clock::time_point now{};
  const SaveTimer half(0.5, [&] { return now; }), never(0, [&] { return now; });
  now += seconds(29);
  EXPECT_FALSE(half.is_due());
  now += seconds(1);
  EXPECT_TRUE(half.is_due());
  now += std::chrono::hours(1000);
  EXPECT_FALSE(never.is_due());
}

TEST(SavesText, SaysWhatAKillCosts) {
  const auto text = [](std::int64_t every, double minutes) {
    Config config;
    config.run.steps = 100;
    config.checkpoint.every = every;
    config.checkpoint.minutes = minutes;
    return saves_text(config);
  };
  EXPECT_EQ(text(0, 10), "every 10 min: a run that is killed loses at most about 10 min");
  EXPECT_EQ(text(20, 0), "every 20 steps: a run that is killed loses at most 20 steps");
  EXPECT_EQ(
      text(20, 2.5),
      "every 20 steps and every 2.5 min: a run that is killed loses at most 20 steps, or about 2.5 min if that is "
      "less");
  for (const std::int64_t every : {0, 100, 1000}) {
    EXPECT_THAT(text(every, 0), HasSubstr("only at the end: a run that is killed loses all its steps")) << every;
  }
}

}  // namespace
}  // namespace lyceum

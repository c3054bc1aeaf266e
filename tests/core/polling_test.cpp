#include "core/polling.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lyceum {
namespace {

using namespace std::chrono_literals;

TEST(Polling, ShortWaitsDoNotSleep) {
  EXPECT_EQ(polling_pause(0), 0us);
  EXPECT_EQ(polling_pause(0.019), 0us);
}

TEST(Polling, PausesGrowWithTheWait) {
  EXPECT_GT(polling_pause(0.02), 50us);
  EXPECT_EQ(polling_pause(0.064), 1ms);
  EXPECT_EQ(polling_pause(0.128), 2ms);
  EXPECT_EQ(polling_pause(100), 5ms);
}

// A wait of unknown length is found to be over at most this much too late, and needs few polls.
TEST(Polling, WaitsEndLittleTooLateAfterFewPolls) {
  double now = 0.02;
  int polls = 0;
  for (; now < 10; ++polls) {
    const double pause = std::chrono::duration<double>(polling_pause(now)).count();
    EXPECT_LE(pause, now / 50);
    now += pause;
  }
  EXPECT_LT(polls, 2200);
}

}  // namespace
}  // namespace lyceum

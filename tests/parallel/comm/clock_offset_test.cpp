#include "parallel/comm/clock_offset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace lyceum {
namespace {

/// Simulates barriers between two ranks whose clocks differ: rank 0 reads the true time, the other one the true time
/// minus `offset`. Delays of messages and of the ranks are random and differ by direction.
ClockOffset simulated(std::int64_t offset, std::mt19937& random, bool same_machine) {
  const auto delay = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  std::vector<std::int64_t> entered, left, own_entered, own_left;
  std::int64_t now = 1'000'000'000;
  for (int round = 0; round < 16; ++round) {
    const std::int64_t first = now + delay(200'000), second = now + delay(200'000);
    const std::int64_t all = std::max(first, second);
    const std::int64_t first_out = all + 1000 + delay(30'000), second_out = all + 1000 + delay(30'000);
    entered.push_back(first);
    left.push_back(first_out);
    own_entered.push_back(second - offset);
    own_left.push_back(second_out - offset);
    now = std::max(first_out, second_out);
  }
  return offset_between({entered, left}, {own_entered, own_left}, same_machine);
}

TEST(ClockOffset, TheTrueOffsetIsWithinTheError) {
  std::mt19937 random(11);
  for (const std::int64_t offset : {std::int64_t{0}, std::int64_t{123'456'789}, std::int64_t{-98'765'432'100'000}}) {
    for (int i = 0; i < 200; ++i) {
      const ClockOffset measured = simulated(offset, random, false);
      EXPECT_LE(std::abs(measured.offset - offset), measured.error);
      EXPECT_GE(measured.error, 1000) << "no message is faster than 1000 ns";
      EXPECT_LE(measured.error, 231'000);
    }
  }
}

TEST(ClockOffset, OneMachineHasOneClockUnlessItIsExcluded) {
  std::mt19937 random(12);
  EXPECT_EQ(simulated(0, random, true).offset, 0);
  EXPECT_EQ(simulated(0, random, true).error, 0);
  const ClockOffset measured = simulated(5'000'000'000, random, true);  // two machines of one name
  EXPECT_LE(std::abs(measured.offset - 5'000'000'000), measured.error);
}

}  // namespace
}  // namespace lyceum

#include <gtest/gtest.h>

#include <cmath>

#include "parallel/comm/clock_offset.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

TEST(ClockOffset, OfRanksThatShareAClockIsZeroWithinItsError) {
  const ProcessGroup& world = test_world();
  const ClockOffset measured = measure_clock_offset(world, false);
  EXPECT_LE(std::abs(measured.offset), measured.error);
  if (world.rank() == 0) {
    EXPECT_EQ(measured.offset, 0);
  }
  const ClockOffset known = measure_clock_offset(world, true);
  EXPECT_EQ(known.offset, 0);
  EXPECT_EQ(known.error, 0);
}

}  // namespace
}  // namespace lyceum

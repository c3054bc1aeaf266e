#include "parallel/expert/placement.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lyceum {
namespace {

TEST(Placement, SharesOutUnevenNumbersInRuns) {
  const Placement placement = Placement::contiguous(7, 3);
  EXPECT_EQ(placement.owner, (std::vector<int>{0, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(placement.first, (std::vector<std::int64_t>{0, 3, 5, 7}));
  EXPECT_EQ(placement.experts_of(1), (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(placement.ranks(), 3);
}

TEST(Placement, RefusesRanksWithoutExperts) { EXPECT_THROW(Placement::contiguous(2, 3), Error); }

}  // namespace
}  // namespace lyceum

#include "parallel/data/flat_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/flat_blocks.h"

namespace lyceum {
namespace {

TEST(CutEvenly, ByHand) {
  using Extents = std::vector<std::int64_t>;
  EXPECT_EQ(cut_evenly(0, 3), (Extents{0, 0, 0}));
  EXPECT_EQ(cut_evenly(1, 1), (Extents{1}));
  EXPECT_EQ(cut_evenly(1, 2), (Extents{0, 1}));
  EXPECT_EQ(cut_evenly(2048, 2), (Extents{1024, 1024}));
  EXPECT_EQ(cut_evenly(3000, 2), (Extents{1024, 1976}));
  EXPECT_EQ(cut_evenly(5 * 1024 + 7, 4), (Extents{1024, 2048, 1024, 1031}));
}

TEST(PaddedForRanks, MakesEqualPartsWhereThatTakesLittle) {
  EXPECT_EQ(padded_for_ranks(5000, 1), 5000);
  EXPECT_EQ(padded_for_ranks(5000, 4), 5000);  // the padding would be 3192 elements
  EXPECT_EQ(padded_for_ranks(0, 4), 0);
  EXPECT_EQ(padded_for_ranks(64 * 1024 - 4096, 4), 60 * 1024);
  EXPECT_EQ(padded_for_ranks(100 * 1024 + 1, 4), 104 * 1024);
  for (const std::int64_t size : {100000LL, 1LL << 20, (1LL << 34) + 7}) {
    for (const int ranks : {2, 3, 5}) {
      const std::vector<std::int64_t> extents = cut_evenly(padded_for_ranks(size, ranks), ranks);
      EXPECT_EQ(std::ranges::count(extents, extents[0]), ranks) << size << " over " << ranks;
      EXPECT_GE(ranks * extents[0], size);
    }
  }
}

TEST(CutEvenly, WholeBlocksThatDifferByOneAtMost) {
  for (const std::int64_t size : {5LL, 1024LL, 99999LL, 1LL << 20, (1LL << 40) + 321}) {
    for (const int ranks : {1, 2, 3, 7, 8, 64}) {
      const std::vector<std::int64_t> extents = cut_evenly(size, ranks);
      ASSERT_EQ(std::ssize(extents), ranks);
      EXPECT_EQ(std::accumulate(extents.begin(), extents.end(), std::int64_t{0}), size);
      const std::int64_t most = (size / flat_block / ranks + 1) * flat_block;
      for (int rank = 0; rank + 1 < ranks; ++rank) EXPECT_EQ(extents[static_cast<std::size_t>(rank)] % flat_block, 0);
      for (const std::int64_t extent : extents) {
        EXPECT_GE(extent, most - 2 * flat_block);
        EXPECT_LE(extent, most);
      }
    }
  }
}

}  // namespace
}  // namespace lyceum

#include "parallel/comm/tree.h"

#include <gtest/gtest.h>

#include <bit>

namespace lyceum {
namespace {

/// Returns the number of ranks in the subtree of `rank`, and checks that they are consecutive as TreeNode states.
int ranks_below(int rank, int ranks, int depth) {
  EXPECT_LE(depth, std::bit_width(static_cast<unsigned>(ranks - 1)));
  const TreeNode place(rank, ranks);
  int below = 1;
  for (std::size_t c = 0; c < place.children.size(); ++c) {
    const int child = place.children[c];
    EXPECT_EQ(child, rank + below) << "the blocks of rank " << rank << " of " << ranks << " are not consecutive";
    EXPECT_EQ(TreeNode(child, ranks).parent, rank);
    EXPECT_EQ(TreeNode(child, ranks).end, place.end_of(c));
    below += ranks_below(child, ranks, depth + 1);
  }
  EXPECT_EQ(place.end, rank + below);
  return below;
}

TEST(TreeNode, EveryRankIsBelowTheTopOnceAndNoneIsDeep) {
  for (const int ranks : {1, 2, 3, 7, 8, 9, 31, 32, 33, 4095, 4096, 4097}) {
    EXPECT_EQ(ranks_below(0, ranks, 0), ranks);
    EXPECT_EQ(TreeNode(0, ranks).parent, -1);
    EXPECT_LE(std::ssize(TreeNode(0, ranks).children), std::bit_width(static_cast<unsigned>(ranks - 1)));
  }
}

}  // namespace
}  // namespace lyceum

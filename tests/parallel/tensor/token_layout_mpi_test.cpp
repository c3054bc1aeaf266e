#include <gtest/gtest.h>

#include <numeric>

#include "parallel/tensor/token_layout.h"
#include "support/op_check.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

TEST(TokenLayoutOnRanks, SharesOutRunsOfTokens) {
  const ProcessGroup group = test_world();
  const TokenLayout layout(group, false, 21, 7);
  EXPECT_EQ(layout.sequences(), 3);
  EXPECT_EQ(layout.own(), part_of(21, group.rank(), group.size()));
  EXPECT_EQ(layout.graded().has_value(), group.size() > 1);
  EXPECT_FALSE(TokenLayout(group, true, 21, 7).graded().has_value());
  EXPECT_THROW(TokenLayout(group, true, 20, 7), Error);
}

/// Every rank continues with the same sum, so the gradient of a rank's summand is the gradient of the sum.
TEST(TokenLayoutOnRanks, AddsUpWhatRanksMakeOfTheirRuns) {
  const ProcessGroup group = test_world();
  const TokenLayout layout(group, false, 21, 7);
  const Stream& stream = tested_stream();
  Tape tape(stream);
  const Variable part =
      tape.leaf(tensor_of(stream, {2, 3}, std::vector<double>(6, static_cast<double>(group.rank() + 1))));
  const Variable sum = layout.sum_over_ranks(tape, part);
  const double ranks = group.size();
  EXPECT_EQ(values_of<double>(stream, sum.value), std::vector<double>(6, ranks * (ranks + 1) / 2));
  tape.backward({{sum, tensor_of(stream, {2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(values_of<double>(stream, tape.gradient(part)), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace lyceum

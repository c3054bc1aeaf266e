#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

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

TEST(TokenLayoutOnRanks, KnowsTheLargestShare) {
  const ProcessGroup group = test_world();
  for (const auto& [tokens, seq_len] : {std::pair<std::int64_t, std::int64_t>{36, 12}, {21, 7}, {2, 1}}) {
    std::int64_t most_tokens = 0, most_sequences = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      const Range own = part_of(tokens, rank, group.size());
      std::set<std::int64_t> sequences;
      for (std::int64_t token = own.first; token < own.first + own.count; ++token) sequences.insert(token / seq_len);
      most_tokens = std::max(most_tokens, own.count);
      most_sequences = std::max(most_sequences, std::ssize(sequences));
    }
    const TokenLayout::Share most = TokenLayout(group, true, tokens, seq_len).largest_share();
    EXPECT_EQ(most.tokens, most_tokens);
    EXPECT_EQ(most.sequences, most_sequences);
    if (group.size() == 4 && tokens == 36) {
      EXPECT_EQ(most.sequences, 2) << "the second rank has tokens of two";
    }
  }
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

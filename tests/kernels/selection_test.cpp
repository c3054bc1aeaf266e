#include "kernels/selection.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

/// k different experts a token.
Grid<std::int32_t> choices(std::int64_t tokens, std::int64_t k, std::int64_t experts) {
  Grid<std::int32_t> index(tokens, k, 1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Permutation order(3, "choices " + std::to_string(t), static_cast<std::uint64_t>(experts));
    for (std::int64_t j = 0; j < k; ++j) {
      index(t, j) = static_cast<std::int32_t>(order(static_cast<std::uint64_t>(j)));
    }
  }
  return index;
}

template <class A>
Grid<A> positive(std::int64_t rows, std::int64_t cols, std::string_view purpose) {
  auto grid = Grid<A>::random(rows, cols, purpose, 2);
  for (A& value : grid.values) value = std::abs(value) + A(0.1);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = cols; c < grid.stride; ++c) grid(r, c) = poison<A>();
  }
  return grid;
}

template <class A>
class SelectionTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SelectionTest, Types);

TYPED_TEST(SelectionTest, NormalisesGatesAndGivesTheirGradient) {
  using A = TypeParam;
  for (const auto& [tokens, k, experts] : {std::tuple{0, 2, 3}, {1, 1, 1}, {7, 3, 5}, {341, 6, 65}}) {
    const Grid<std::int32_t> index = choices(tokens, k, experts);
    auto gates = positive<A>(tokens, k, "gates");
    const auto before = gates, d_gates = Grid<A>::random(tokens, k, "d_gates", 1);
    Grid<A> sums(1, tokens), d_scores(tokens, experts, 3), plain(tokens, experts, 1);
    launch_on(2, NormalizeGates<A>{gates.matrix(), sums.span()});
    launch_on(2,
              SelectionBackward<A>{index.matrix(), gates.matrix(), d_gates.matrix(), sums.span(), d_scores.matrix()});
    launch_on(2, SelectionBackward<A>{index.matrix(), gates.matrix(), d_gates.matrix(), {}, plain.matrix()});
    std::vector<double> expected_gates;
    auto expected = Grid<double>::zeros(tokens, experts), expected_plain = expected;
    for (std::int64_t t = 0; t < tokens; ++t) {
      double sum = 0, weighted = 0;
      for (std::int64_t j = 0; j < k; ++j) sum += before.at(t, j);
      for (std::int64_t j = 0; j < k; ++j) weighted += before.at(t, j) * d_gates.at(t, j);
      for (std::int64_t j = 0; j < k; ++j) {
        expected_gates.push_back(before.at(t, j) / sum);
        expected(t, static_cast<std::int64_t>(index.at(t, j))) =
            d_gates.at(t, j) / sum - weighted / (sum * sum);  // of the quotient
        expected_plain(t, static_cast<std::int64_t>(index.at(t, j))) = d_gates.at(t, j);
      }
    }
    expect_close(gates, expected_gates);
    expect_close(d_scores, expected.flat(), 10 * tolerance_of<A>);
    expect_close(plain, expected_plain.flat());
  }
}

TYPED_TEST(SelectionTest, CountsChoicesAndAveragesScoresOfWholeAndCutSequences) {
  using A = TypeParam;
  struct Case {
    std::int64_t sequences, seq_len, first, tokens, k, experts;
  };
  for (const Case& c : {Case{1, 1, 0, 1, 1, 1}, {2, 50, 0, 100, 3, 40}, {3, 7, 5, 10, 2, 33}, {2, 4, 3, 0, 1, 5}}) {
    const Grid<std::int32_t> index = choices(c.tokens, c.k, c.experts);
    const auto scores = positive<A>(c.tokens, c.experts, "scores");
    Grid<A> count(c.sequences, c.experts, 1), mean(c.sequences, c.experts, 2);
    launch_on(2, SequenceLoad<A>{.index = index.matrix(),
                                 .scores = scores.matrix(),
                                 .seq_len = c.seq_len,
                                 .count = count.matrix(),
                                 .mean_probability = mean.matrix(),
                                 .first = c.first});
    auto expected_count = Grid<double>::zeros(c.sequences, c.experts), expected_mean = expected_count;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const std::int64_t s = (c.first + t) / c.seq_len;
      for (std::int64_t j = 0; j < c.k; ++j) expected_count(s, static_cast<std::int64_t>(index.at(t, j))) += 1;
      for (std::int64_t e = 0; e < c.experts; ++e) {
        expected_mean(s, e) += scores.at(t, e) / static_cast<double>(c.seq_len);
      }
    }
    EXPECT_EQ(count.flat(), expected_count.flat());
    EXPECT_TRUE(count.gaps_untouched());
    expect_close(mean, expected_mean.flat(), 4 * tolerance_of<A>);

    const auto slope = Grid<A>::random(c.sequences, c.experts, "slope", 1);
    Grid<A> d_scores(c.tokens, c.experts, 2);
    launch_on(2, SpreadOverSequence<A>{slope.matrix(), c.seq_len, d_scores.matrix(), c.first});
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t e = 0; e < c.experts; ++e) {
        ASSERT_EQ(d_scores.at(t, e), slope.at((c.first + t) / c.seq_len, e));
      }
    }
    EXPECT_TRUE(d_scores.gaps_untouched());
  }
}

}  // namespace
}  // namespace lyceum

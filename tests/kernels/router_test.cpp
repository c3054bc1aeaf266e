#include "kernels/router.h"

#include <numeric>
#include <set>

#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

std::vector<double> naive_softmax(const Grid<double>& x) {
  std::vector<double> y;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < x.cols; ++c) sum += std::exp(x.at(r, c));
    for (std::int64_t c = 0; c < x.cols; ++c) y.push_back(std::exp(x.at(r, c)) / sum);
  }
  return y;
}

/// The first k of all indices in a stable sort by falling score.
std::vector<std::int32_t> naive_top(const std::vector<double>& scores, std::size_t k) {
  std::vector<std::int32_t> index(scores.size());
  std::iota(index.begin(), index.end(), 0);
  std::stable_sort(index.begin(), index.end(), [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  index.resize(k);
  return index;
}

template <class A>
class RouterTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(RouterTest, Types);

TYPED_TEST(RouterTest, SoftmaxOfOddSizes) {
  using A = TypeParam;
  for (const auto& [rows, cols] : {std::pair{1, 1}, {0, 5}, {7, 33}, {341, 97}}) {
    auto x = Grid<A>::random(rows, cols, "x", 3, 3);
    Grid<A> y(rows, cols, 1), log_sum_exp(1, rows), two(rows, cols, 1);
    launch_on(1, SoftmaxForward<A>{x.matrix(), y.matrix(), log_sum_exp.span()});
    launch_on(2, SoftmaxForward<A>{x.matrix(), two.matrix(), {}});
    const std::vector<double> expected = naive_softmax(x.widened());
    expect_close(y, expected, 2 * tolerance_of<A>);
    EXPECT_TRUE(y.same_bits(two));
    for (std::int64_t r = 0; r < rows; ++r) {
      const double probability = expected[static_cast<std::size_t>(r * cols)];
      EXPECT_NEAR(log_sum_exp.at(0, r), x.at(r, 0) - std::log(probability), 20 * tolerance_of<A>);
    }
    launch_on(1, SoftmaxForward<A>{x.matrix(), x.matrix(), {}});
    EXPECT_EQ(x.flat(), y.flat());
  }
}

TYPED_TEST(RouterTest, SoftmaxOfLargeScoresAndNan) {
  using A = TypeParam;
  Grid<A> x(3, 3);
  x.values = {A(1e30), A(-1e30), A(1e30), A(0), poison<A>(), A(0), A(0), A(0), A(0)};
  Grid<A> y(3, 3);
  launch_on(1, SoftmaxForward<A>{x.matrix(), y.matrix(), {}});
  EXPECT_EQ(y.at(0, 0), 0.5);
  EXPECT_EQ(y.at(0, 1), 0);
  for (std::int64_t c = 0; c < 3; ++c) {
    EXPECT_TRUE(is_nan(y.at(1, c)));
    EXPECT_NEAR(y.at(2, c), 1.0 / 3, 1e-7);
  }
}

TYPED_TEST(RouterTest, SoftmaxGradient) {
  using A = TypeParam;
  for (const auto& [rows, cols] : {std::pair{1, 1}, {0, 3}, {7, 33}, {341, 97}}) {
    const auto y = Grid<A>::random(rows, cols, "y", 2), dy = Grid<A>::random(rows, cols, "dy", 3);
    Grid<A> dx(rows, cols, 1), two(rows, cols, 1);
    launch_on(1, SoftmaxBackward<A>{y.matrix(), dy.matrix(), dx.matrix()});
    launch_on(2, SoftmaxBackward<A>{y.matrix(), dy.matrix(), two.matrix()});
    EXPECT_TRUE(dx.same_bits(two));
    std::vector<double> expected;
    for (std::int64_t r = 0; r < rows; ++r) {
      double dot = 0;
      for (std::int64_t c = 0; c < cols; ++c) dot += y.at(r, c) * dy.at(r, c);
      for (std::int64_t c = 0; c < cols; ++c) expected.push_back(y.at(r, c) * (dy.at(r, c) - dot));
    }
    expect_close(dx, expected, 20 * tolerance_of<A>);
    auto in_place = dy;
    launch_on(1, SoftmaxBackward<A>{y.matrix(), in_place.matrix(), in_place.matrix()});
    EXPECT_EQ(in_place.flat(), dx.flat());
  }
}

TEST(Router, SoftmaxGradientByFiniteDifferences) {
  auto x = Grid<double>::random(2, 5, "x"), dy = Grid<double>::random(2, 5, "dy");
  Grid<double> y(2, 5), dx(2, 5);
  launch_on(1, SoftmaxForward<double>{x.matrix(), y.matrix(), {}});
  launch_on(1, SoftmaxBackward<double>{y.matrix(), dy.matrix(), dx.matrix()});
  expect_gradient(
      [&](const std::vector<double>& v) { return weighted_sum(naive_softmax(Grid<double>::from(2, 5, v)), dy.flat()); },
      x.flat(), dx.flat());
}

TYPED_TEST(RouterTest, TopKOfScoresWithTies) {
  using A = TypeParam;
  for (const auto& [rows, cols, k] : {std::tuple{1, 1, 1}, {0, 5, 2}, {7, 33, 33}, {2000, 64, 7}, {5, 7, 0}}) {
    auto scores = Grid<A>::random(rows, cols, "scores", 3);
    for (A& score : scores.values) score = std::round(score * 4) / 4;  // many ties
    Grid<std::int32_t> index(rows, k, 1), two(rows, k, 1);
    Grid<A> value(rows, k, 2);
    launch_on(2, TopK<A>{scores.matrix(), two.matrix(), value.matrix()});
    launch_on(1, TopK<A>{scores.matrix(), index.matrix(), value.matrix()});
    EXPECT_TRUE(index.same_bits(two));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<double> row;
      for (std::int64_t c = 0; c < cols; ++c) row.push_back(scores.at(r, c));
      const std::vector<std::int32_t> expected = naive_top(row, static_cast<std::size_t>(k));
      for (std::int64_t j = 0; j < k; ++j) {
        ASSERT_EQ(index(r, j), expected[static_cast<std::size_t>(j)]);
        ASSERT_EQ(value.at(r, j), scores.at(r, index(r, j)));
      }
    }
    EXPECT_TRUE(index.gaps_untouched() && value.gaps_untouched());
  }
}

TYPED_TEST(RouterTest, TopKNeverPrefersNan) {
  using A = TypeParam;
  const A nan = poison<A>(), low = -std::numeric_limits<A>::infinity();
  Grid<A> scores(3, 4);
  scores.values = {nan, nan, nan, nan, nan, low, nan, A(1), low, low, low, low};
  Grid<std::int32_t> index(3, 3);
  Grid<A> value(3, 3);
  launch_on(1, TopK<A>{scores.matrix(), index.matrix(), value.matrix()});
  EXPECT_EQ(index.values, (std::vector<std::int32_t>{0, 1, 2, 3, 1, 0, 0, 1, 2}));
  EXPECT_TRUE(is_nan(value.at(0, 0)));
}

TEST(Router, TopKRefusesMoreThanThereAre) {
  const auto scores = Grid<float>::random(2, 3, "scores");
  Grid<std::int32_t> index(2, 4);
  Grid<float> value(2, 4);
  EXPECT_THROW(launch_on(1, TopK<float>{scores.matrix(), index.matrix(), value.matrix()}), Error);
}

TEST(Router, CountsChoicesByRank) {
  for (const std::int64_t tokens : {0, 1, 7, 20000}) {
    Grid<std::int32_t> index(tokens, 3, 2);
    const Philox random(4, "index");
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < 3; ++j)
        index(t, j) = static_cast<std::int32_t>(random.below(4, static_cast<std::uint64_t>(3 * t + j)));
    }
    auto expected = Grid<std::int64_t>::zeros(3, 5, 1);
    for (std::int64_t j = 0; j < 3; ++j) expected(j, 4) = 10;
    auto one = expected, two = expected;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < 3; ++j) ++expected(j, index(t, j));
    }
    launch_on(1, CountChoices{index.matrix(), one.matrix()});
    launch_on(2, CountChoices{index.matrix(), two.matrix()});
    EXPECT_EQ(one.values, expected.values);
    EXPECT_EQ(two.values, expected.values);
  }
  for (const std::int32_t bad : {-1, 5}) {
    Grid<std::int32_t> index(2, 1);
    index.values = {0, bad};
    auto counts = Grid<std::int64_t>::zeros(1, 5);
    EXPECT_THROW(launch_on(1, CountChoices{index.matrix(), counts.matrix()}), Error);
  }
}

TEST(SumColumns, AddsToWhatIsThere) {
  for (const auto& [rows, cols] : {std::pair{0, 3}, {1, 1}, {200, 70}}) {
    const auto x = Grid<float>::random(rows, cols, "x", 1);
    std::vector<double> sums(static_cast<std::size_t>(cols), 5);
    launch_on(1, SumColumns<float>{x.matrix(), sums});
    for (std::int64_t c = 0; c < cols; ++c) {
      double expected = 5;
      for (std::int64_t r = 0; r < rows; ++r) expected += x.at(r, c);
      EXPECT_NEAR(sums[static_cast<std::size_t>(c)], expected, 1e-10);
    }
  }
}

TEST(EvenChoices, FallOnAllExpertsAlike) {
  const auto scores = Grid<float>::random(35, 7, "scores", 2);
  Grid<std::int32_t> index(35, 3, 1);
  Grid<float> value(35, 3, 2);
  launch_on(1, EvenChoices<float>{scores.matrix(), index.matrix(), value.matrix()});
  std::vector<int> counts(7, 0);
  for (std::int64_t t = 0; t < 35; ++t) {
    for (std::int64_t j = 0; j < 3; ++j) {
      const std::int32_t expert = index(t, j);
      ASSERT_EQ(expert, (3 * t + j) % 7);
      ++counts[static_cast<std::size_t>(expert)];
      EXPECT_EQ(value(t, j), static_cast<float>(scores.at(t, expert)));
    }
  }
  EXPECT_EQ(counts, std::vector<int>(7, 15));
  EXPECT_TRUE(index.gaps_untouched() && value.gaps_untouched());
  Grid<std::int32_t> too_many(35, 8);
  Grid<float> values(35, 8);
  EXPECT_THROW(launch_on(1, EvenChoices<float>{scores.matrix(), too_many.matrix(), values.matrix()}), Error);
}

}  // namespace
}  // namespace lyceum

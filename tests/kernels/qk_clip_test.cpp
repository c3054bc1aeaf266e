#include "kernels/qk_clip.h"

#include <cmath>
#include <limits>

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr double no_logit = -std::numeric_limits<double>::infinity(), endless = std::numeric_limits<double>::infinity();

template <class A>
class RaiseToColumnsTest : public testing::Test {};
using LogitTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(RaiseToColumnsTest, LogitTypes);

TYPED_TEST(RaiseToColumnsTest, TakesTheLargestOfEachColumn) {
  using A = TypeParam;
  for (const auto& [rows, cols] : {std::pair{0, 3}, {1, 1}, {3, 0}, {7, 13}, {256, 32}, {257, 33}, {2000, 5}}) {
    for (const std::int64_t gap : {0, 3}) {
      const auto x = Grid<A>::random(rows, cols, "x", gap);
      std::vector<double> y(static_cast<std::size_t>(cols), no_logit);
      if (cols > 2) y[2] = 100;
      std::vector<double> expected = y;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; ++c) {
          double& most = expected[static_cast<std::size_t>(c)];
          most = std::max(most, x.at(r, c));
        }
      }
      launch_on(2, RaiseToColumns<A>{.x = x.matrix(), .y = y});
      EXPECT_EQ(y, expected) << rows << " x " << cols;
    }
  }
}

TYPED_TEST(RaiseToColumnsTest, IgnoresNan) {
  using A = TypeParam;
  auto x = Grid<A>::from(3, 2, {-5, 1, 0, 0, -4, 7});
  x(1, 0) = x(2, 1) = poison<A>();
  std::vector<double> y{no_logit, 0.5};
  launch_on(1, RaiseToColumns<A>{.x = x.matrix(), .y = y});
  EXPECT_EQ(y, (std::vector<double>{-4, 1}));
  EXPECT_THROW(launch_on(1, RaiseToColumns<A>{.x = x.matrix(), .y = std::span(y).first(1)}), Error);
}

std::vector<double> factors_of(const std::vector<double>& largest, std::int64_t group, double threshold) {
  std::vector<double> factors(2 * largest.size() / static_cast<std::size_t>(group), poison<double>());
  launch_on(1, QkClipFactors{.largest = largest, .group = group, .threshold = threshold, .factors = factors});
  return factors;
}

TEST(QkClipFactors, ScaleHeadsAboveTheThreshold) {
  EXPECT_EQ(factors_of({3, 4, 16, no_logit, -7}, 1, 4), (std::vector<double>{1, 1, 0.5, 1, 1, 1, 1, 0.25, 1, 1}));
  EXPECT_EQ(factors_of({}, 1, 4), std::vector<double>());
}

/// Query heads that share a key head have the factor of the one with the largest logit.
TEST(QkClipFactors, AreThoseOfTheLargestLogitOfAGroup) {
  EXPECT_EQ(factors_of({3, 16, 4, 3, 64, 16, no_logit, no_logit}, 2, 4),
            (std::vector<double>{0.5, 1, 0.25, 1, 0.25, 1, 0.0625, 1}));
}

TEST(QkClipFactors, IgnoreLogitsThatAreNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(factors_of({endless, nan, 16}, 1, 4), (std::vector<double>{1, 1, 0.5, 1, 1, 0.25}));
  EXPECT_EQ(factors_of({endless, 16}, 2, 4), (std::vector<double>{0.5, 0.25}));
}

TEST(QkClipFactors, RefuseImpossibleSizes) {
  std::vector<double> largest(6, 1), factors(6);
  EXPECT_THROW(launch_on(1, QkClipFactors{.largest = largest, .group = 4, .threshold = 1, .factors = factors}), Error);
  EXPECT_THROW(launch_on(1, QkClipFactors{.largest = largest, .group = 2, .threshold = 0, .factors = factors}), Error);
}

}  // namespace
}  // namespace lyceum

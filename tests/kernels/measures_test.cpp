#include "kernels/measures.h"

#include <cmath>
#include <limits>

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
class MeasuresTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(MeasuresTest, Types);

TYPED_TEST(MeasuresTest, AddsTheSquaresOfAllElements) {
  using T = TypeParam;
  for (const auto& [rows, cols] : {std::pair{0, 3}, {1, 1}, {3, 0}, {7, 13}, {70, 512}, {2, 5000}}) {
    for (const std::int64_t gap : {0, 3}) {
      const auto x = Grid<T>::random(rows, cols, "x", gap);
      std::vector<double> y{5}, of_rows(static_cast<std::size_t>(rows), poison<double>());
      launch_on(2, AddSquares<T>{.x = x.matrix(), .rows = of_rows, .y = y});
      long double expected = 5;
      for (std::int64_t r = 0; r < rows; ++r) {
        long double row = 0;
        for (std::int64_t c = 0; c < cols; ++c) row += static_cast<long double>(x.at(r, c)) * x.at(r, c);
        EXPECT_TRUE(std::abs(of_rows[static_cast<std::size_t>(r)] - static_cast<double>(row)) <= 1e-12 * (1 + row));
        expected += row;
      }
      EXPECT_TRUE(std::abs(y[0] - static_cast<double>(expected)) <= 1e-12 * static_cast<double>(expected));
    }
  }
}

TYPED_TEST(MeasuresTest, SameBitsOnAnyNumberOfThreads) {
  const auto x = Grid<TypeParam>::random(101, 333, "x");
  std::vector<double> one{0}, two{0}, of_rows(101);
  launch_on(1, AddSquares<TypeParam>{.x = x.matrix(), .rows = of_rows, .y = one});
  launch_on(2, AddSquares<TypeParam>{.x = x.matrix(), .rows = of_rows, .y = two});
  EXPECT_EQ(one[0], two[0]);
}

TYPED_TEST(MeasuresTest, NanShows) {
  auto x = Grid<TypeParam>::random(4, 9, "x");
  x(2, 5) = poison<TypeParam>();
  std::vector<double> y{0}, of_rows(4);
  launch_on(1, AddSquares<TypeParam>{.x = x.matrix(), .rows = of_rows, .y = y});
  EXPECT_TRUE(is_nan(y[0]));
  EXPECT_THROW(launch_on(1, AddSquares<TypeParam>{.x = x.matrix(), .rows = std::span(of_rows).first(3), .y = y}),
               Error);
}

double raised(double y, const std::vector<float>& x) {
  std::vector<double> largest{y};
  launch_on(1, RaiseToLargest<float>{.x = x, .y = largest});
  return largest[0];
}

TEST(RaiseToLargest, KeepsTheLargestNumberAndEveryNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(raised(-infinity, {}), -infinity);
  EXPECT_EQ(raised(-infinity, {-3, -2, -5}), -2);
  EXPECT_EQ(raised(7, {1, 2}), 7);
  EXPECT_EQ(raised(1, {2, static_cast<float>(infinity)}), infinity);
  EXPECT_TRUE(std::isnan(raised(9, {1, nan, 2})));
  EXPECT_TRUE(std::isnan(raised(static_cast<double>(nan), {1, 2})));
  std::vector<float> many(5000, 0);
  many[4321] = 3;
  EXPECT_EQ(raised(0, many), 3);
  many[17] = nan;
  EXPECT_TRUE(std::isnan(raised(0, many)));
}

}  // namespace
}  // namespace lyceum

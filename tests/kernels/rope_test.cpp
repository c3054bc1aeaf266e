#include "kernels/rope.h"

#include <complex>

#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr double base = 10000;

template <class A>
Grid<A> table_of(std::int64_t positions, std::int64_t dim) {
  Grid<A> table(positions, dim, 3);
  launch_on(1, RopeTable<A>{table.matrix(), base});
  return table;
}

/// Returns the expected result: each pair as a complex number, multiplied by e^(i·position·rate).
std::vector<double> naive(const Grid<double>& x, std::int64_t dim, std::int64_t seq_len, std::int64_t first,
                          double sign = 1) {
  Grid<double> y = x;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t head = 0; head < x.cols; head += dim) {
      for (std::int64_t i = 0; i < dim / 2; ++i) {
        const double rate = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        const double position = static_cast<double>(first + r % seq_len);
        const auto turned =
            std::complex(x.at(r, head + i), x.at(r, head + i + dim / 2)) * std::polar(1.0, sign * position * rate);
        y(r, head + i) = turned.real();
        y(r, head + i + dim / 2) = turned.imag();
      }
    }
  }
  return y.flat();
}

template <class T>
class RopeTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(RopeTest, Types);

TYPED_TEST(RopeTest, TurnsPairsOfHalvesByPosition) {
  using T = TypeParam;
  struct Case {
    std::int64_t sequences, seq_len, heads, dim, first;
  };
  for (const Case& c : {Case{1, 1, 1, 2, 0}, {2, 7, 3, 10, 0}, {1, 33, 2, 64, 5}, {0, 7, 1, 4, 0}, {3, 50, 5, 66, 0}}) {
    const auto table = table_of<Accumulator<T>>(c.first + c.seq_len, c.dim);
    auto x = Grid<T>::random(c.sequences * c.seq_len, c.heads * c.dim, "x", 3);
    const Grid<double> before = x.widened();
    auto two = x;
    launch_on(1, Rope<T>{x.matrix(), table.matrix(), c.seq_len, c.first});
    expect_close(x, naive(before, c.dim, c.seq_len, c.first));
    launch_on(2, Rope<T>{two.matrix(), table.matrix(), c.seq_len, c.first});
    EXPECT_TRUE(x.same_bits(two));
    launch_on(1, Rope<T>{x.matrix(), table.matrix(), c.seq_len, c.first, true});
    expect_close(x, before.flat(), 8 * tolerance_of<T>);  // errors are relative to the larger element of a pair
  }
}

TYPED_TEST(RopeTest, PositionsBeginAnewInEachDocument) {
  using T = TypeParam;
  const auto table = table_of<Accumulator<T>>(8, 6);
  const std::vector<std::int32_t> first_keys{0, 0, 0, 3, 3, 3, 3, 7, /* another sequence */ 0, 1, 1, 1, 4, 4, 4, 4};
  auto x = Grid<T>::random(16, 12, "x", 3);
  const Grid<double> before = x.widened();
  launch_on(2, Rope<T>{.x = x.matrix(), .table = table.matrix(), .seq_len = 8, .first_keys = first_keys});
  std::vector<double> expected;
  for (std::int64_t r = 0, end = 1; r < 16; r = end++) {
    while (end % 8 != 0 && first_keys[static_cast<std::size_t>(end)] == r % 8) ++end;
    Grid<double> document(end - r, 12);
    for (std::int64_t i = r; i < end; ++i) {
      for (std::int64_t c = 0; c < 12; ++c) document(i - r, c) = before.at(i, c);
    }
    const std::vector<double> turned = naive(document, 6, end - r, 0);
    expected.insert(expected.end(), turned.begin(), turned.end());
  }
  expect_close(x, expected);
}

TYPED_TEST(RopeTest, NanShows) {
  using T = TypeParam;
  const auto table = table_of<Accumulator<T>>(4, 6);
  auto x = Grid<T>::random(4, 6, "x");
  x(2, 1) = poison<T>();
  launch_on(1, Rope<T>{x.matrix(), table.matrix(), 4});
  EXPECT_TRUE(is_nan(x.at(2, 1)) && is_nan(x.at(2, 4)));
  EXPECT_FALSE(is_nan(x.at(2, 0)) || is_nan(x.at(1, 1)));
}

TEST(Rope, InverseIsTheGradient) {
  const auto table = table_of<double>(5, 4);
  const auto x = Grid<double>::random(5, 8, "x");
  auto dy = Grid<double>::random(5, 8, "dy");
  const std::vector<double> weight = dy.flat();
  launch_on(1, Rope<double>{dy.matrix(), table.matrix(), 5, 0, true});
  expect_gradient(
      [&](const std::vector<double>& v) { return weighted_sum(naive(Grid<double>::from(5, 8, v), 4, 5, 0), weight); },
      x.flat(), dy.flat());
}

TEST(Rope, TableIsExactFarOut) {
  const auto table = table_of<float>(5000, 8);
  for (const std::int64_t p : {0, 1, 4999}) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const long double angle = static_cast<long double>(p) * std::pow(10000.0L, -static_cast<long double>(i) / 4);
      EXPECT_NEAR(table.at(p, i), static_cast<double>(std::cos(angle)), 6e-8);
      EXPECT_NEAR(table.at(p, i + 4), static_cast<double>(std::sin(angle)), 6e-8);
    }
  }
}

TEST(Rope, RefusesPositionsBeyondTheTable) {
  const auto table = table_of<float>(5, 4);
  auto x = Grid<float>::random(6, 8, "x");
  EXPECT_THROW(launch_on(1, Rope<float>{x.matrix(), table.matrix(), 6}), Error);
  EXPECT_THROW(launch_on(1, Rope<float>{x.matrix(), table.matrix(), 3, 3}), Error);
  auto narrow = Grid<float>::random(5, 6, "x");
  EXPECT_THROW(launch_on(1, Rope<float>{narrow.matrix(), table.matrix(), 5}), Error);
}

}  // namespace
}  // namespace lyceum

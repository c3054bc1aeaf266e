#include "kernels/rope.h"

#include <complex>
#include <limits>
#include <numbers>
#include <utility>

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

/// The shape of heads: `dim` of `head` columns are rotated, from column `first` on.
struct Heads {
  std::int64_t head, dim;
  RopeLayout layout = RopeLayout::half;
  std::int64_t first = 0;
};

/// Returns the expected result: each pair as a complex number, multiplied by e^(i·position·rate).
std::vector<double> naive(const Grid<double>& x, const Heads& heads, std::int64_t seq_len, std::int64_t first,
                          double sign = 1) {
  Grid<double> y = x;
  const std::int64_t dim = heads.dim;
  const bool halves = heads.layout == RopeLayout::half;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t head = heads.first; head < x.cols; head += heads.head) {
      for (std::int64_t i = 0; i < dim / 2; ++i) {
        const double rate = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        const double position = static_cast<double>(first + r % seq_len);
        const std::int64_t one = head + (halves ? i : 2 * i), other = head + (halves ? i + dim / 2 : 2 * i + 1);
        const auto turned = std::complex(x.at(r, one), x.at(r, other)) * std::polar(1.0, sign * position * rate);
        y(r, one) = turned.real();
        y(r, other) = turned.imag();
      }
    }
  }
  return y.flat();
}
std::vector<double> naive(const Grid<double>& x, std::int64_t dim, std::int64_t seq_len, std::int64_t first) {
  return naive(x, Heads{dim, dim}, seq_len, first);
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

TYPED_TEST(RopeTest, TurnsSomeColumnsOfHeadsAndNeighbours) {
  using T = TypeParam;
  using enum RopeLayout;
  // Widths that fit into the packs of a GPU, and widths that do not.
  for (const Heads& heads : {Heads{4, 2},
                             {6, 4},
                             {7, 4},
                             {32, 16},
                             {40, 32},
                             {64, 20},
                             {8, 8, interleaved},
                             {64, 64, interleaved},
                             {64, 16, interleaved},
                             {10, 6, interleaved},
                             {7, 6, interleaved},
                             {6, 4, RopeLayout::half, 2},
                             {192, 64, interleaved, 128},
                             {40, 32, RopeLayout::half, 8},
                             {9, 4, interleaved, 3}}) {
    for (const std::int64_t gap : {0, 3, 8}) {
      SCOPED_TRACE(testing::Message() << heads.dim << " of " << heads.head << " from " << heads.first << ", gap "
                                      << gap);
      const auto table = table_of<Accumulator<T>>(14, heads.dim);
      auto x = Grid<T>::random(18, 3 * heads.head, "x", gap);
      const Grid<double> before = x.widened();
      auto two = x, back = x;
      const auto rope = [&](Grid<T>& of, bool inverse = false) {
        return Rope<T>{.x = of.matrix(),
                       .table = table.matrix(),
                       .seq_len = 9,
                       .first_position = 5,
                       .inverse = inverse,
                       .head_dim = heads.head,
                       .layout = heads.layout,
                       .first_column = heads.first};
      };
      launch_on(1, rope(x));
      expect_close(x, naive(before, heads, 9, 5));
      launch_on(2, rope(two));
      EXPECT_TRUE(x.same_bits(two));
      launch_on(1, rope(back, true));
      expect_close(back, naive(before, heads, 9, 5, -1));
    }
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
  for (const auto& [heads, factor] : {std::pair{Heads{4, 4}, 1.0}, std::pair{Heads{4, 2}, 1.5},
                                      std::pair{Heads{8, 6, RopeLayout::interleaved}, 0.75}}) {
    Grid<double> table(5, heads.dim);
    launch_on(1, RopeTable<double>{table.matrix(), base, {.attention_factor = factor}});
    const auto x = Grid<double>::random(5, 8, "x");
    auto dy = Grid<double>::random(5, 8, "dy");
    const std::vector<double> weight = dy.flat();
    const auto rope = [&](Grid<double>& of, bool inverse) {
      return Rope<double>{.x = of.matrix(),
                          .table = table.matrix(),
                          .seq_len = 5,
                          .inverse = inverse,
                          .head_dim = heads.head,
                          .layout = heads.layout};
    };
    launch_on(1, rope(dy, true));
    expect_gradient(
        [&](const std::vector<double>& v) {
          auto y = Grid<double>::from(5, 8, v);
          launch_on(1, rope(y, false));
          return weighted_sum(y.flat(), weight);
        },
        x.flat(), dy.flat());
  }
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

/// Returns the frequency of pair i as the papers define the scalings, case by case.
long double frequency_by_cases(std::int64_t dim, const RopeScaling& scaling, std::int64_t i) {
  const long double turn = 2 * std::numbers::pi_v<long double>;
  const long double plain =
      std::pow(static_cast<long double>(base), -2.0L * static_cast<long double>(i) / static_cast<long double>(dim));
  const long double divided = plain / scaling.factor, length = scaling.original_length;
  switch (scaling.kind) {
    case RopeScalingKind::none: return plain;
    case RopeScalingKind::linear: return divided;
    case RopeScalingKind::llama3: {  // by wavelength [Llama 3.1]
      const long double wavelength = turn / plain;
      if (wavelength < length / scaling.high) return plain;
      if (wavelength > length / scaling.low) return divided;
      const long double smooth = (length / wavelength - scaling.low) / (scaling.high - scaling.low);
      return (1 - smooth) * divided + smooth * plain;
    }
    case RopeScalingKind::yarn: {  // interpolation · γ + extrapolation · (1 − γ) [Peng et al. 2023]
      if (i <= scaling.low) return plain;
      if (i >= scaling.high) return divided;
      const long double ramp = (i - scaling.low) / (scaling.high - scaling.low);
      return divided * ramp + plain * (1 - ramp);
    }
  }
  return std::numeric_limits<long double>::quiet_NaN();
}

TEST(Rope, TablesOfScaledPositions) {
  using enum RopeScalingKind;
  const std::int64_t positions = 300;
  for (const RopeScaling& scaling : {RopeScaling{.kind = linear, .factor = 4},
                                     {.kind = llama3, .factor = 8, .low = 1, .high = 4, .original_length = 100},
                                     {.kind = llama3, .factor = 1, .low = 1, .high = 1.5, .original_length = 8192},
                                     {.kind = yarn, .factor = 40, .low = 1, .high = 6, .attention_factor = 1.37},
                                     {.kind = yarn, .factor = 4, .low = 2.3, .high = 2.301, .attention_factor = 0.5},
                                     {.kind = yarn, .factor = 16, .low = 0, .high = 0.001}}) {
    for (const std::int64_t dim : {16, 15, 2}) {
      Grid<float> table(positions, (dim + 1) / 2 * 2, 3);
      launch_on(2, RopeTable<float>{table.matrix(), base, scaling, dim});
      std::vector<double> expected;
      for (std::int64_t p = 0; p < positions; ++p) {
        for (std::int64_t c = 0; c < table.cols; ++c) {
          const std::int64_t pairs = table.cols / 2;
          const long double angle = static_cast<long double>(p) * frequency_by_cases(dim, scaling, c % pairs);
          expected.push_back(
              static_cast<double>(scaling.attention_factor * (c < pairs ? std::cos(angle) : std::sin(angle))));
        }
      }
      expect_close(table, expected, 1e-6);
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
  EXPECT_THROW(launch_on(1, Rope<float>{.x = narrow.matrix(), .table = table.matrix(), .seq_len = 5, .head_dim = 3}),
               Error)
      << "more rotated columns than a head has";
  Grid<float> odd(5, 3), wide(5, 8);
  EXPECT_THROW(launch_on(1, RopeTable<float>{odd.matrix(), base}), Error);
  EXPECT_THROW(launch_on(1, RopeTable<float>{wide.matrix(), base, {}, 6}), Error);
}

}  // namespace
}  // namespace lyceum

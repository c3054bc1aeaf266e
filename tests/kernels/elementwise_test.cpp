#include "kernels/elementwise.h"

#include <bit>

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class To, class From>
std::vector<To> cast(const std::vector<From>& x, int threads = 1) {
  std::vector<To> y(x.size(), poison<To>());
  launch_on(threads, Cast<From, To>{x, y});
  return y;
}

bfloat16 from_bits(std::uint32_t bits) {
  bfloat16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

bool nan_bits(std::uint16_t bits) { return (bits & 0x7fffu) > 0x7f80u; }

template <class T>
class ElementwiseTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(ElementwiseTest, Types);

TYPED_TEST(ElementwiseTest, AddsAndScales) {
  using T = TypeParam;
  for (const std::int64_t size : {0, 1, 7, 33, 341, 40001}) {
    const auto a = Grid<T>::random(1, size, "a"), b = Grid<T>::random(1, size, "b");
    std::vector<double> sums, products;
    for (std::int64_t i = 0; i < size; ++i) {
      sums.push_back(to_double(round_to<T>(static_cast<Accumulator<T>>(a.at(0, i) + b.at(0, i)))));
      products.push_back(to_double(round_to<T>(static_cast<Accumulator<T>>(a.at(0, i) * 0.75))));
    }
    for (const int threads : {1, 2}) {
      Grid<T> y(1, size);
      launch_on(threads, Add<T>{a.span(), b.span(), y.span()});
      EXPECT_EQ(y.flat(), sums);
      auto in_place = a;
      launch_on(threads, Add<T>{in_place.span(), b.span(), in_place.span()});
      EXPECT_EQ(in_place.flat(), sums);
      in_place = a;
      launch_on(threads, Scale<T>{in_place.span(), in_place.span(), 0.75});
      EXPECT_EQ(in_place.flat(), products);
    }
  }
}

TYPED_TEST(ElementwiseTest, CutsOffBelowZero) {
  using T = TypeParam;
  for (const std::int64_t size : {0, 1, 33, 40001}) {
    auto x = Grid<T>::random(1, size, "x");
    if (size > 1) x(0, 1) = T{};
    const auto dy = Grid<T>::random(1, size, "dy");
    std::vector<double> kept, gradients;
    for (std::int64_t i = 0; i < size; ++i) {
      kept.push_back(std::max(x.at(0, i), 0.0));
      gradients.push_back(x.at(0, i) > 0 ? dy.at(0, i) : 0);
    }
    for (const int threads : {1, 2}) {
      Grid<T> y(1, size);
      launch_on(threads, ReluForward<T>{x.span(), y.span()});
      EXPECT_EQ(y.flat(), kept);
      auto dx = dy;
      launch_on(threads, ReluBackward<T>{y.span(), dx.span(), dx.span()});
      EXPECT_EQ(dx.flat(), gradients);
    }
  }
}

TYPED_TEST(ElementwiseTest, NanShows) {
  using T = TypeParam;
  const std::vector<T> nan{poison<T>()}, one{static_cast<T>(1.0f)};
  std::vector<T> y(1);
  launch_on(1, Add<T>{one, nan, y});
  EXPECT_TRUE(is_nan(to_double(y[0])));
  y = one;
  launch_on(1, Scale<T>{nan, y, 0});
  EXPECT_TRUE(is_nan(to_double(y[0])));
  y = one;
  launch_on(1, ReluForward<T>{nan, y});
  EXPECT_TRUE(is_nan(to_double(y[0])));
}

TEST(Elementwise, RefusesOtherLengths) {
  const std::vector<float> a(3), b(4);
  std::vector<float> y(4);
  EXPECT_THROW(launch_on(1, Add<float>{a, b, y}), Error);
  EXPECT_THROW(launch_on(1, Cast<float, float>{a, y}), Error);
}

/// Tests every value of bfloat16, and floats around the midpoint between it and the next value. The result must be the
/// nearest value, or the even one at the midpoint.
TEST(Cast, RoundsToNearestEvenAtEveryValueOfBfloat16) {
  std::vector<float> words;
  std::vector<std::uint16_t> expected;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (nan_bits(static_cast<std::uint16_t>(bits))) continue;
    const bool infinite = (bits & 0x7fffu) == 0x7f80u;
    for (const std::uint32_t rest : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      if (infinite && rest) continue;
      words.push_back(std::bit_cast<float>(bits << 16 | rest));
      const bool up = rest > 0x8000u || (rest == 0x8000u && bits % 2);
      expected.push_back(static_cast<std::uint16_t>(bits + up));
    }
  }
  for (const int threads : {1, 2}) {
    const std::vector<bfloat16> rounded = cast<bfloat16>(words, threads);
    for (std::size_t i = 0; i < words.size(); ++i) ASSERT_EQ(rounded[i].bits, expected[i]) << words[i];
  }
  const std::vector<bfloat16> through_double = cast<bfloat16>(cast<double>(words));
  for (std::size_t i = 0; i < words.size(); ++i) ASSERT_EQ(through_double[i].bits, expected[i]) << words[i];
}

TEST(Cast, KeepsEveryBfloat16AndItsNan) {
  std::vector<bfloat16> all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) all.push_back(from_bits(bits));
  const std::vector<float> floats = cast<float>(all);
  const std::vector<double> doubles = cast<double>(all);
  const std::vector<bfloat16> copies = cast<bfloat16>(all), back = cast<bfloat16>(floats),
                              narrow = cast<bfloat16>(doubles);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    ASSERT_EQ(copies[bits].bits, bits);
    if (nan_bits(static_cast<std::uint16_t>(bits))) {
      ASSERT_TRUE(is_nan(floats[bits]) && is_nan(doubles[bits]));
      ASSERT_TRUE(nan_bits(back[bits].bits) && nan_bits(narrow[bits].bits));
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[bits]), bits << 16);
      ASSERT_EQ(doubles[bits], static_cast<double>(floats[bits]));
      ASSERT_EQ(back[bits].bits, bits);
      ASSERT_EQ(narrow[bits].bits, bits);
    }
  }
}

TEST(Cast, RoundsDoublesOnce) {
  // Numbers just above or below the midpoint of two bfloat16 values. Rounding to float first would give the midpoint,
  // which then rounds to the even value.
  const double middle = 1 + 0x1p-8, odd_middle = 1 + 3 * 0x1p-8;
  const std::vector<double> x{
      middle, middle + 0x1p-40, middle - 0x1p-40, odd_middle, odd_middle - 0x1p-40, -middle - 0x1p-40,
      1e300,  -1e300,           1e-300,           0.0};
  const std::vector<float> expected{1,
                                    1 + 0x1p-7f,
                                    1,
                                    1 + 0x1p-6f,
                                    1 + 0x1p-7f,
                                    -1 - 0x1p-7f,
                                    std::numeric_limits<float>::infinity(),
                                    -std::numeric_limits<float>::infinity(),
                                    0,
                                    0};
  EXPECT_EQ(cast<float>(cast<bfloat16>(x)), expected);
}

TEST(Cast, FloatAndDouble) {
  const std::vector<double> x{0.1, -1e300, 1e-60, 3};
  const std::vector<float> narrow{0.1f, -std::numeric_limits<float>::infinity(), 0, 3};
  EXPECT_EQ(cast<float>(x), narrow);
  EXPECT_EQ(cast<double>(narrow)[0], static_cast<double>(0.1f));
  EXPECT_EQ(cast<double>(x), x);
  EXPECT_EQ(cast<float>(narrow), narrow);
  EXPECT_TRUE(is_nan(cast<float>(std::vector<double>{poison<double>()})[0]));
}

TEST(AddScaled, AddsTheProductInDouble) {
  const std::vector<float> x{1.5f, -2, 0};
  std::vector<double> y{1, 2, 3};
  launch_on(1, AddScaled<float, double>{x, 0.1, y});
  EXPECT_EQ(y, (std::vector<double>{1 + 0.1 * 1.5, 2 - 0.1 * 2, 3}));
  std::vector<float> z{1, 2, 3};
  launch_on(1, AddScaled<double, float>{y, 2, z});
  EXPECT_FLOAT_EQ(z[0], 3.3f);
}

/// Long enough for several threads.
TEST(AddScaled, WidensBf16) {
  const std::size_t size = 100001;
  const std::vector<double> times{0.5};
  std::vector<bfloat16> x(size);
  std::vector<float> y(size), expected(size);
  for (std::size_t i = 0; i < size; ++i) {
    x[i] = bfloat16(static_cast<float>(i % 251) - 100);
    y[i] = static_cast<float>(i % 17);
    expected[i] = y[i] + 3 * static_cast<float>(x[i]);
  }
  launch_on(4, AddScaled<bfloat16, float>{.x = x, .factor = 6, .y = y, .times = times});
  EXPECT_EQ(y, expected);
}

TEST(Total, IsTheSumInDouble) {
  for (const std::int64_t size : {0, 1, 31, 5000}) {
    std::vector<float> x(static_cast<std::size_t>(size), 0.1f), y{-7};
    if (size > 1) x[1] = 1e7f;
    double sum = 0;
    for (const float value : x) sum += static_cast<double>(value);
    launch_on(2, Total<float>{x, y});
    EXPECT_FLOAT_EQ(y[0], static_cast<float>(sum)) << size;
  }
}

TEST(SplitFloat, TwoPartsHaveSixteenBits) {
  const auto x = Grid<float>::random(9, 5, "x", 2, 100);
  for (const std::int64_t width : {5, 8}) {
    Grid<bfloat16> parts(9, 2 * width, 1);
    launch_on(2, SplitFloat{x.matrix(), parts.matrix()});
    for (std::int64_t r = 0; r < 9; ++r) {
      for (std::int64_t c = 0; c < 5; ++c) {
        EXPECT_EQ(parts.at(r, c), to_double(static_cast<bfloat16>(static_cast<float>(x.at(r, c)))));
        EXPECT_NEAR(parts.at(r, c) + parts.at(r, width + c), x.at(r, c), std::abs(x.at(r, c)) * 0x1p-16);
      }
      for (std::int64_t c = 5; c < width; ++c) EXPECT_EQ(parts.at(r, c), 0);
      for (std::int64_t c = 5; c < width; ++c) EXPECT_EQ(parts.at(r, width + c), 0);
    }
    EXPECT_TRUE(parts.gaps_untouched());
  }
  Grid<bfloat16> narrow(9, 8), odd(9, 11);
  EXPECT_THROW(launch_on(2, SplitFloat{x.matrix(), narrow.matrix()}), Error);
  EXPECT_THROW(launch_on(2, SplitFloat{x.matrix(), odd.matrix()}), Error);
}

}  // namespace
}  // namespace lyceum

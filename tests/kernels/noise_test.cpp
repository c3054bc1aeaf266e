#include "kernels/noise.h"

#include <array>
#include <cmath>
#include <numbers>
#include <set>

#include "core/random.h"
#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

struct Place {
  std::uint64_t seed = 1;
  std::int64_t layer = 0, first = 0;
  double step = 0;
};

template <class A>
Grid<A> with_noise(const Place& place, const Grid<A>& x, const Grid<A>& scale, int threads = 1) {
  Grid<A> y(x.rows, x.cols, 1);
  launch_on(threads, AddNoise<A>{.x = x.matrix(),
                                 .scale = scale.matrix(),
                                 .y = y.matrix(),
                                 .noise = {place.seed, place.layer, place.first, {&place.step, 1}}});
  EXPECT_TRUE(y.gaps_untouched());
  return y;
}

/// Returns ε, as the noise for a scale of log(e − 1), whose softplus is 1.
template <class A>
Grid<A> noise_at(const Place& place, std::int64_t rows, std::int64_t cols) {
  Grid<A> scale(rows, cols);
  std::fill(scale.values.begin(), scale.values.end(), static_cast<A>(std::log(std::exp(1.0) - 1)));
  return with_noise(place, Grid<A>::zeros(rows, cols), scale);
}

template <class A>
class NoiseTest : public testing::Test {};
using NumberTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(NoiseTest, NumberTypes);

/// ε is the Box-Muller transform of the words of one Philox block, whose counter consists of token, layer, step and
/// expert / 4.
TYPED_TEST(NoiseTest, IsAFunctionOfItsPlace) {
  using A = TypeParam;
  const Place place{.seed = 0x123456789abcdefu, .layer = 5, .first = (std::int64_t{3} << 32) + 7, .step = 11};
  const Grid<A> noise = noise_at<A>(place, 3, 6);
  const std::uint64_t key = splitmix64(place.seed ^ 0x726f75746572u);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t e = 0; e < 6; ++e) {
      const std::array<std::uint32_t, 4> words =
          philox4x32({static_cast<std::uint32_t>(7 + t), 3u << 16 | 5u, 11u, static_cast<std::uint32_t>(e / 4)},
                     {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
      const auto pair = static_cast<std::size_t>(e % 4 / 2 * 2);
      const double u = (words[pair] + 0.5) * 0x1p-32, angle = 2 * std::numbers::pi * (words[pair + 1] * 0x1p-32);
      const double expected = std::sqrt(-2 * std::log(u)) * (e % 2 ? std::sin(angle) : std::cos(angle));
      EXPECT_NEAR(noise.at(t, e), expected, 20 * tolerance_of<A>);
    }
  }
}

TYPED_TEST(NoiseTest, IsTheSameWhereverTheRowsAreCut) {
  using A = TypeParam;
  for (const std::int64_t cols : {1, 4, 9, 130}) {
    const auto x = Grid<A>::random(50, cols, "x", 2), scale = Grid<A>::random(50, cols, "scale", 1);
    const Place place{.layer = 2, .first = 100, .step = 3};
    const Grid<A> all = with_noise(place, x, scale);
    EXPECT_TRUE(all.same_bits(with_noise(place, x, scale, 2)));
    Grid<A> tail_x(20, cols), tail_scale(20, cols);
    for (std::int64_t r = 0; r < 20; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        tail_x(r, c) = static_cast<A>(x.at(30 + r, c));
        tail_scale(r, c) = static_cast<A>(scale.at(30 + r, c));
      }
    }
    const Grid<A> tail = with_noise({.layer = 2, .first = 130, .step = 3}, tail_x, tail_scale);
    for (std::int64_t r = 0; r < 20; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) EXPECT_EQ(tail.at(r, c), all.at(30 + r, c));
    }
  }
  EXPECT_EQ(noise_at<A>({}, 0, 3).flat().size(), 0u);
}

TYPED_TEST(NoiseTest, DiffersByEverythingThatNamesItsPlace) {
  using A = TypeParam;
  std::set<double> numbers;
  std::size_t count = 0;
  for (const Place& place : {Place{}, Place{.seed = 2}, Place{.layer = 1}, Place{.first = 8}, Place{.step = 1},
                             Place{.first = std::int64_t{1} << 32}}) {
    for (const double number : noise_at<A>(place, 8, 5).flat()) {
      numbers.insert(number);
      ++count;
    }
  }
  EXPECT_EQ(numbers.size(), count);
}

TYPED_TEST(NoiseTest, IsStandardNormal) {
  using A = TypeParam;
  const std::vector<double> noise = noise_at<A>({.seed = 9}, 2000, 10).flat();
  double sum = 0, squares = 0, fourth = 0;
  for (const double number : noise) {
    sum += number;
    squares += number * number;
    fourth += number * number * number * number;
  }
  const auto n = static_cast<double>(noise.size());
  EXPECT_NEAR(sum / n, 0, 0.03);  // tolerances: about four standard errors
  EXPECT_NEAR(squares / n, 1, 0.04);
  EXPECT_NEAR(fourth / n, 3, 0.3);
}

TYPED_TEST(NoiseTest, FollowsSoftplusAndItsDerivative) {
  using A = TypeParam;
  const Place place{.layer = 1, .step = 4};
  const auto x = Grid<A>::random(7, 9, "x"), dy = Grid<A>::random(7, 9, "dy");
  auto scale = Grid<A>::random(7, 9, "scale", 0, 3);
  scale(0, 0) = A(-200), scale(0, 1) = A(200);
  const std::vector<double> noise = noise_at<A>(place, 7, 9).flat();
  const Grid<A> y = with_noise(place, x, scale);
  Grid<A> d_scale(7, 9);
  launch_on(2, AddNoiseBackward<A>{.scale = scale.matrix(),
                                   .dy = dy.matrix(),
                                   .d_scale = d_scale.matrix(),
                                   .noise = {place.seed, place.layer, place.first, {&place.step, 1}}});
  for (std::int64_t r = 0; r < 7; ++r) {
    for (std::int64_t c = 0; c < 9; ++c) {
      const double epsilon = noise[static_cast<std::size_t>(r * 9 + c)], s = scale.at(r, c);
      const double softplus = s > 100 ? s : std::log1p(std::exp(s));
      EXPECT_NEAR(y.at(r, c), x.at(r, c) + epsilon * softplus, 20 * tolerance_of<A> * (1 + softplus));
      EXPECT_NEAR(d_scale.at(r, c), dy.at(r, c) * epsilon / (1 + std::exp(-s)), 20 * tolerance_of<A>);
    }
  }
}

TEST(Noise, RefusesWhatDoesNotFit) {
  const auto x = Grid<float>::random(3, 4, "x"), other = Grid<float>::random(3, 5, "other");
  EXPECT_THROW(with_noise<float>({}, x, other), Error);
  EXPECT_THROW(with_noise<float>({.layer = 1 << 16}, x, x), Error);
  EXPECT_THROW(with_noise<float>({.first = -1}, x, x), Error);
  Grid<float> y(3, 4);
  EXPECT_THROW(launch_on(1, AddNoise<float>{x.matrix(), x.matrix(), y.matrix(), {1, 0, 0, {}}}), Error);
}

}  // namespace
}  // namespace lyceum

#include "kernels/adamw.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr double lr = 3e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, clip = 0.7;

template <class T>
struct Parameter {
  using A = Accumulator<T>;
  std::int64_t size;
  Grid<A> master, exp_avg, exp_avg_sq;
  Grid<T> weight;

  explicit Parameter(std::int64_t size)
      : size(size),
        master(Grid<A>::random(1, size, "weight")),
        exp_avg(Grid<A>::zeros(1, size)),
        exp_avg_sq(Grid<A>::zeros(1, size)),
        weight(1, size) {}

  Grid<A> gradient(int step) const { return Grid<A>::random(1, size, "gradient " + std::to_string(step)); }
  void step(int n, int threads, const Grid<A>& gradient) {
    launch_on(threads,
              AdamWStep<T>{master.span(), exp_avg.span(), exp_avg_sq.span(), gradient.span(), weight.span(), clip, lr,
                           beta1, beta2, eps, decay, 1 - std::pow(beta1, n), 1 - std::pow(beta2, n)});
  }
};

/// The algorithm as its paper writes it (Algorithm 2, schedule in the rate), for one element.
double by_hand(double w, const std::vector<double>& gradients) {
  double m = 0, v = 0;
  for (std::size_t n = 1; n <= gradients.size(); ++n) {
    const double g = gradients[n - 1] * clip;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, n)), v_hat = v / (1 - std::pow(beta2, n));
    w -= lr * (m_hat / (std::sqrt(v_hat) + eps) + decay * w);
  }
  return w;
}

template <class T>
class AdamWTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(AdamWTest, Types);

TYPED_TEST(AdamWTest, SeveralStepsByHand) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const std::int64_t size : {0, 1, 7, 33, 341, 40000}) {
    Parameter<T> one(size), two(size);
    const std::vector<double> start = one.master.flat();
    std::vector<std::vector<double>> gradients(static_cast<std::size_t>(size));
    for (int n = 1; n <= 5; ++n) {
      const Grid<A> gradient = one.gradient(n);
      one.step(n, 1, gradient);
      two.step(n, 2, gradient);
      for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i].push_back(to_double(gradient.values[i]));
    }
    EXPECT_TRUE(one.master.same_bits(two.master) && one.weight.same_bits(two.weight));
    EXPECT_TRUE(one.exp_avg.same_bits(two.exp_avg) && one.exp_avg_sq.same_bits(two.exp_avg_sq));
    std::vector<double> expected;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      expected.push_back(by_hand(start[i], gradients[i]));
      ASSERT_EQ(one.weight.at(0, static_cast<std::int64_t>(i)), to_double(round_to<T>(one.master.values[i])));
    }
    expect_close(one.master, expected, tolerance_of<A>);
  }
}

TEST(AdamW, TheClipFactorMayStandInMemory) {
  Parameter<float> by_value(100), by_memory(100);
  const Grid<float> gradient = by_value.gradient(1);
  by_value.step(1, 1, gradient);
  const std::vector<double> half{clip / 2};
  launch_on(1, AdamWStep<float>{.master = by_memory.master.span(),
                                .exp_avg = by_memory.exp_avg.span(),
                                .exp_avg_sq = by_memory.exp_avg_sq.span(),
                                .gradient = gradient.span(),
                                .weight = by_memory.weight.span(),
                                .gradient_scale = 2,
                                .lr = lr,
                                .beta1 = beta1,
                                .beta2 = beta2,
                                .eps = eps,
                                .weight_decay = decay,
                                .bias1 = 1 - beta1,
                                .bias2 = 1 - beta2,
                                .clip = half});
  EXPECT_TRUE(by_memory.weight.same_bits(by_value.weight));
  EXPECT_TRUE(by_memory.exp_avg_sq.same_bits(by_value.exp_avg_sq));
}

TEST(AdamW, MasterMayBeTheWeight) {
  Parameter<float> apart(100), together(100);
  const Grid<float> gradient = apart.gradient(1);
  apart.step(1, 1, gradient);
  launch_on(
      1, AdamWStep<float>{together.master.span(), together.exp_avg.span(), together.exp_avg_sq.span(), gradient.span(),
                          together.master.span(), clip, lr, beta1, beta2, eps, decay, 1 - beta1, 1 - beta2});
  EXPECT_TRUE(together.master.same_bits(apart.weight));
}

TEST(AdamW, NanShowsAndZeroGradientsOnlyDecay) {
  Parameter<bfloat16> parameter(3);
  auto gradient = Grid<float>::zeros(1, 3);
  gradient(0, 1) = poison<float>();
  const std::vector<double> before = parameter.master.flat();
  parameter.step(1, 1, gradient);
  EXPECT_TRUE(is_nan(parameter.master.at(0, 1)) && is_nan(parameter.weight.at(0, 1)) &&
              is_nan(parameter.exp_avg.at(0, 1)));
  EXPECT_NEAR(parameter.master.at(0, 0), before[0] * (1 - lr * decay), 1e-7);
}

TEST(AdamW, RefusesOtherLengths) {
  Parameter<float> parameter(3);
  EXPECT_THROW(parameter.step(1, 1, Grid<float>::zeros(1, 4)), Error);
}

constexpr std::int64_t block = 1000;

template <class A>
std::vector<double> sums_of_squares(const Grid<A>& x, int threads) {
  std::vector<double> sums((x.values.size() + block - 1) / block, poison<double>());
  launch_on(threads, SumOfSquares<A>{x.span(), block, sums});
  return sums;
}

template <class A>
class SumOfSquaresTest : public testing::Test {};
using Accumulators = testing::Types<float, double>;
TYPED_TEST_SUITE(SumOfSquaresTest, Accumulators);

TYPED_TEST(SumOfSquaresTest, SameBitsOnAnyNumberOfThreads) {
  for (const std::int64_t size : {0, 1, 7, 33, 341, 1000, 32768, 100001}) {
    const auto x = Grid<TypeParam>::random(1, size, "x", 0, 1e20);
    const std::vector<double> sums = sums_of_squares(x, 1);
    for (std::size_t at = 0; at < sums.size(); ++at) {
      long double expected = 0;
      for (std::size_t i = at * block; i < std::min(x.values.size(), (at + 1) * block); ++i) {
        expected += static_cast<long double>(x.values[i]) * static_cast<long double>(x.values[i]);
      }
      EXPECT_TRUE(std::abs(sums[at] - static_cast<double>(expected)) <= 1e-13 * static_cast<double>(expected));
    }
    EXPECT_EQ(sums, sums_of_squares(x, 2));
    EXPECT_EQ(sums, sums_of_squares(x, 3));
  }
}

TYPED_TEST(SumOfSquaresTest, NanAndInfinityShowInTheirBlockAlone) {
  for (const std::int64_t place : {0, 50000, 100000}) {
    auto x = Grid<TypeParam>::random(1, 100001, "x");
    x(0, place) = -std::numeric_limits<TypeParam>::infinity();
    const std::vector<double> infinite = sums_of_squares(x, 2);
    x(0, place) = poison<TypeParam>();
    const std::vector<double> nan = sums_of_squares(x, 2);
    for (std::int64_t at = 0; at < std::ssize(nan); ++at) {
      EXPECT_EQ(std::isinf(infinite[static_cast<std::size_t>(at)]), at == place / block);
      EXPECT_EQ(is_nan(nan[static_cast<std::size_t>(at)]), at == place / block);
    }
  }
}

TEST(SumOfSquares, RefusesWhatDoesNotFit) {
  std::vector<float> x(10);
  std::vector<double> sums(2);
  EXPECT_THROW(launch_on(1, SumOfSquares<float>{x, 4, sums}), Error);
  EXPECT_THROW(launch_on(1, SumOfSquares<float>{x, 0, sums}), Error);
}

}  // namespace
}  // namespace lyceum

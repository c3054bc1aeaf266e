#include "kernels/rms_norm.h"

#include <tuple>

#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr double eps = 1e-6;

template <class T>
struct Norm {
  Grid<T> x, weight, dy;
  Grid<T> y, dx;
  Grid<Accumulator<T>> inverse_rms, d_weight;

  Norm(Grid<T> x_in, Grid<T> weight_in, Grid<T> dy_in)
      : x(std::move(x_in)),
        weight(std::move(weight_in)),
        dy(std::move(dy_in)),
        y(x.rows, x.cols, 2),
        dx(x.rows, x.cols, 5),
        inverse_rms(1, x.rows),
        d_weight(Grid<Accumulator<T>>::zeros(1, x.cols)) {}

  Norm& run(int threads = 1) {
    launch_on(threads, RmsNormForward<T>{x.matrix(), weight.span(), y.matrix(), inverse_rms.span(), eps});
    launch_on(threads, RmsNormBackward<T>{x.matrix(), dy.matrix(), weight.span(), inverse_rms.span(), dx.matrix()});
    launch_on(threads, RmsNormWeightGrad<T>{x.matrix(), dy.matrix(), inverse_rms.span(), d_weight.span()});
    return *this;
  }
};

template <class T>
Norm<T> random_norm(std::int64_t rows, std::int64_t cols) {
  return {Grid<T>::random(rows, cols, "x", 3, 2), Grid<T>::random(1, cols, "weight"),
          Grid<T>::random(rows, cols, "dy", 1)};
}

std::vector<double> naive_forward(const Grid<double>& x, const Grid<double>& weight) {
  std::vector<double> y;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < x.cols; ++c) sum += x.at(r, c) * x.at(r, c);
    const double rms = std::sqrt(sum / static_cast<double>(x.cols) + eps);
    for (std::int64_t c = 0; c < x.cols; ++c) y.push_back(x.at(r, c) / rms * weight.at(0, c));
  }
  return y;
}

template <class T>
class RmsNormTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(RmsNormTest, Types);

TYPED_TEST(RmsNormTest, AgreesWithDoubleOnOddSizes) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {1, 7}, {7, 33}, {33, 341}, {341, 97}}) {
    auto norm = random_norm<TypeParam>(rows, cols);
    norm.run();
    expect_close(norm.y, naive_forward(norm.x.widened(), norm.weight.widened()));
    Norm<double> wide(norm.x.widened(), norm.weight.widened(), norm.dy.widened());
    wide.run();
    // If there is one column, the terms of dx cancel and only rounding errors remain.
    if (cols > 1) expect_close(norm.dx, wide.dx.flat(), 2 * tolerance_of<TypeParam>);
    expect_close(norm.d_weight, wide.d_weight.flat(), 1e-5);
  }
}

/// Rows of whole packs, with and without residuals. A warp of a GPU keeps the shorter rows in registers: up to 384, 768
/// or 1536 columns, depending on the type.
TYPED_TEST(RmsNormTest, AgreesWithDoubleInPacks) {
  using T = TypeParam;
  constexpr std::int64_t gap = 8;
  for (const auto& [rows, cols, residual] :
       {std::tuple{9, 264, true}, {5, 384, false}, {2, 384, true}, {2, 768, true}, {2, 1536, true}, {3, 1544, true}}) {
    const auto x = Grid<T>::random(rows, cols, "x", gap), added = Grid<T>::random(rows, cols, "added", gap),
               dy = Grid<T>::random(rows, cols, "dy", gap), d_sum = Grid<T>::random(rows, cols, "d_sum", gap),
               weight = Grid<T>::random(1, cols, "weight");
    Grid<T> y(rows, cols, gap), sum(rows, cols, gap), dx(rows, cols, gap);
    Grid<Accumulator<T>> inverse_rms(1, rows);
    RmsNormForward<T> forward{x.matrix(), weight.span(), y.matrix(), inverse_rms.span(), eps};
    RmsNormBackward<T> backward{x.matrix(), dy.matrix(), weight.span(), inverse_rms.span(), dx.matrix()};
    if (!residual) {
      launch_on(1, forward);
      launch_on(1, backward);
      expect_close(y, naive_forward(x.widened(), weight.widened()));
      Norm<double> wide(x.widened(), weight.widened(), dy.widened());
      expect_close(dx, wide.run().dx.flat(), 2 * tolerance_of<T>);
      continue;
    }
    forward.added = added.matrix();
    forward.sum = sum.matrix();
    backward.x = sum.matrix();
    backward.d_sum = d_sum.matrix();
    launch_on(1, forward);
    launch_on(1, backward);
    const std::vector<double> xs = x.flat(), others = added.flat(), direct = d_sum.flat();
    std::vector<double> sums;
    for (std::size_t i = 0; i < xs.size(); ++i) {
      sums.push_back(
          to_double(round_to<T>(static_cast<Accumulator<T>>(xs[i]) + static_cast<Accumulator<T>>(others[i]))));
    }
    EXPECT_EQ(sum.flat(), sums);
    expect_close(y, naive_forward(sum.widened(), weight.widened()));
    Norm<double> wide(sum.widened(), weight.widened(), dy.widened());
    std::vector<double> gradient = wide.run().dx.flat();
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += direct[i];
    expect_close(dx, gradient, 2 * tolerance_of<T>);
  }
}

TYPED_TEST(RmsNormTest, NanStaysInItsRowOfPacks) {
  using T = TypeParam;
  constexpr std::int64_t rows = 10, cols = 264, poisoned = 8;
  auto x = Grid<T>::random(rows, cols, "x", 8);
  const auto dy = Grid<T>::random(rows, cols, "dy", 8), weight = Grid<T>::random(1, cols, "weight");
  x(poisoned, 260) = poison<T>();
  Grid<T> y(rows, cols, 8), dx(rows, cols, 8);
  Grid<Accumulator<T>> inverse_rms(1, rows);
  launch_on(1, RmsNormForward<T>{x.matrix(), weight.span(), y.matrix(), inverse_rms.span(), eps});
  launch_on(1, RmsNormBackward<T>{x.matrix(), dy.matrix(), weight.span(), inverse_rms.span(), dx.matrix()});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      EXPECT_EQ(is_nan(y.at(r, c)), r == poisoned) << r << ' ' << c;
      EXPECT_EQ(is_nan(dx.at(r, c)), r == poisoned) << r << ' ' << c;
    }
  }
}

TYPED_TEST(RmsNormTest, SameBitsOnAnyNumberOfThreads) {
  auto one = random_norm<TypeParam>(1000, 97), two = one, three = one;
  one.run(1);
  for (auto* other : {&two.run(2), &three.run(3)}) {
    EXPECT_TRUE(one.y.same_bits(other->y));
    EXPECT_TRUE(one.dx.same_bits(other->dx));
    EXPECT_TRUE(one.d_weight.same_bits(other->d_weight));
  }
}

TYPED_TEST(RmsNormTest, NoRows) {
  auto norm = random_norm<TypeParam>(0, 33);
  norm.run();
  for (const double value : norm.d_weight.flat()) EXPECT_EQ(value, 0);
}

TYPED_TEST(RmsNormTest, NanStaysInItsRowAndShows) {
  auto norm = random_norm<TypeParam>(3, 33);
  norm.x(1, 20) = poison<TypeParam>();
  norm.run();
  for (std::int64_t c = 0; c < 33; ++c) {
    EXPECT_TRUE(is_nan(norm.y.at(1, c)) && is_nan(norm.dx.at(1, c)) && is_nan(norm.d_weight.at(0, c)));
    EXPECT_FALSE(is_nan(norm.y.at(0, c)) || is_nan(norm.y.at(2, c)) || is_nan(norm.dx.at(2, c)));
  }
}

TEST(RmsNorm, GradientsByFiniteDifferences) {
  auto norm = random_norm<double>(3, 7);
  norm.run();
  const std::vector<double> dy = norm.dy.flat();
  const Grid<double> x = norm.x.widened(), weight = norm.weight.widened();
  expect_gradient(
      [&](const std::vector<double>& v) {
        return weighted_sum(naive_forward(Grid<double>::from(3, 7, v), weight), dy);
      },
      x.flat(), norm.dx.flat());
  expect_gradient(
      [&](const std::vector<double>& v) { return weighted_sum(naive_forward(x, Grid<double>::from(1, 7, v)), dy); },
      weight.flat(), norm.d_weight.flat());
}

TEST(RmsNorm, WeightGradientAccumulates) {
  auto norm = random_norm<float>(5, 3);
  norm.run();
  const std::vector<double> once = norm.d_weight.flat();
  norm.run();
  for (std::int64_t c = 0; c < 3; ++c) EXPECT_EQ(norm.d_weight.at(0, c), 2 * once[static_cast<std::size_t>(c)]);
}

TEST(RmsNorm, RefusesOtherExtents) {
  auto norm = random_norm<float>(5, 3);
  norm.y = Grid<float>(5, 4);
  EXPECT_THROW(norm.run(), Error);
}

}  // namespace
}  // namespace lyceum

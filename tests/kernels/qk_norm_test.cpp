#include "kernels/qk_norm.h"

#include <tuple>

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr double epsilon = 1e-5;

/// Runs all kernels of QkNorm on random operands, for one rank.
template <class T>
struct NormedHeads {
  using A = Accumulator<T>;
  QkNormShape shape;
  Grid<T> x, dy, q_weight, k_weight, y, dx;
  Grid<A> squares, inverse_rms, dots, dq, dk;

  NormedHeads(const QkNormShape& s, std::int64_t tokens)
      : shape(s),
        x(Grid<T>::random(tokens, s.width(), "x", 8, 2)),
        dy(Grid<T>::random(tokens, s.width(), "dy")),
        q_weight(Grid<T>::random(1, s.query_weights(), "q")),
        k_weight(Grid<T>::random(1, s.key_weights(), "k")),
        y(tokens, s.width()),
        dx(tokens, s.width(), 16),
        squares(tokens, s.groups()),
        inverse_rms(tokens, s.groups(), 1),
        dots(tokens, s.groups()),
        dq(Grid<A>::zeros(1, s.query_weights())),
        dk(Grid<A>::zeros(1, s.key_weights())) {}

  NormedHeads& run(int threads = 1) {
    launch_on(threads, QkSquares<T>{.shape = shape, .x = x.matrix(), .sums = squares.matrix()});
    launch_on(threads, QkNormForward<T>{.shape = shape,
                                        .x = x.matrix(),
                                        .q_weight = q_weight.span(),
                                        .k_weight = k_weight.span(),
                                        .squares = squares.matrix(),
                                        .y = y.matrix(),
                                        .inverse_rms = inverse_rms.matrix(),
                                        .eps = epsilon});
    launch_on(threads, QkDots<T>{.shape = shape,
                                 .x = x.matrix(),
                                 .dy = dy.matrix(),
                                 .q_weight = q_weight.span(),
                                 .k_weight = k_weight.span(),
                                 .sums = dots.matrix()});
    launch_on(threads, QkNormBackward<T>{.shape = shape,
                                         .x = x.matrix(),
                                         .dy = dy.matrix(),
                                         .q_weight = q_weight.span(),
                                         .k_weight = k_weight.span(),
                                         .inverse_rms = inverse_rms.matrix(),
                                         .dots = dots.matrix(),
                                         .dx = dx.matrix()});
    for (const bool of_keys : {false, true}) {
      launch_on(threads, QkNormWeightGrad<T>{.shape = shape,
                                             .of_keys = of_keys,
                                             .x = x.matrix(),
                                             .dy = dy.matrix(),
                                             .inverse_rms = inverse_rms.matrix(),
                                             .d_weight = (of_keys ? dk : dq).span()});
    }
    return *this;
  }
};

/// The expected y, dx and gradients of the weights by the formula, group by group.
struct Expected {
  std::vector<double> y, dx, dq, dk;

  template <class T>
  explicit Expected(const NormedHeads<T>& norm)
      : y(norm.x.flat()),
        dx(norm.dy.flat()),
        dq(static_cast<std::size_t>(norm.q_weight.cols), 0.0),
        dk(static_cast<std::size_t>(norm.k_weight.cols), 0.0) {
    const auto& [heads, kv_heads, dim, by_head, ranks] = norm.shape;
    for (std::int64_t t = 0; t < norm.x.rows; ++t) {
      if (!by_head) {
        add(norm, t, 0, heads * dim, norm.q_weight, dq);
        add(norm, t, heads * dim, kv_heads * dim, norm.k_weight, dk);
        continue;
      }
      for (std::int64_t h = 0; h < heads; ++h) add(norm, t, h * dim, dim, norm.q_weight, dq);
      for (std::int64_t h = 0; h < kv_heads; ++h) add(norm, t, (heads + h) * dim, dim, norm.k_weight, dk);
    }
  }

 private:
  template <class T>
  void add(const NormedHeads<T>& norm, std::int64_t t, std::int64_t first, std::int64_t cols, const Grid<T>& weight,
           std::vector<double>& d_weight) {
    double squares = 0, dots = 0;
    for (std::int64_t c = 0; c < cols; ++c) {
      squares += norm.x.at(t, first + c) * norm.x.at(t, first + c);
      dots += norm.dy.at(t, first + c) * weight.at(0, c) * norm.x.at(t, first + c);
    }
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(cols) + epsilon);
    for (std::int64_t c = 0; c < cols; ++c) {
      const double x = norm.x.at(t, first + c), d = norm.dy.at(t, first + c), w = weight.at(0, c);
      const auto at = static_cast<std::size_t>(t * norm.shape.width() + first + c);
      y[at] = x * inverse * w;
      dx[at] = inverse * (d * w - x * inverse * inverse * dots / static_cast<double>(cols));
      d_weight[static_cast<std::size_t>(c)] += d * x * inverse;
    }
  }
};

template <class T>
class QkNormTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(QkNormTest, Types);

TYPED_TEST(QkNormTest, AgreesWithDoubleOnOddSizes) {
  for (const bool by_head : {true, false}) {
    for (const auto& [heads, kv_heads, dim, tokens] :
         {std::tuple{1, 1, 2, 1}, {4, 2, 6, 7}, {3, 1, 5, 300}, {4, 2, 32, 9}, {40, 8, 16, 3}, {2, 2, 8, 0}}) {
      NormedHeads<TypeParam> norm({heads, kv_heads, dim, by_head}, tokens);
      norm.run(2);
      const Expected expected(norm);
      expect_close(norm.y, expected.y);
      expect_close(norm.dx, expected.dx, 2 * tolerance_of<TypeParam>);
      expect_close(norm.dq, expected.dq, 1e-5);
      expect_close(norm.dk, expected.dk, 1e-5);
      EXPECT_TRUE(norm.squares.gaps_untouched() && norm.inverse_rms.gaps_untouched() && norm.dots.gaps_untouched());
    }
  }
}

TYPED_TEST(QkNormTest, SameBitsOnAnyNumberOfThreads) {
  for (const bool by_head : {true, false}) {
    NormedHeads<TypeParam> one({4, 2, 16, by_head}, 1000), three = one;
    one.run(1);
    three.run(3);
    EXPECT_TRUE(one.y.same_bits(three.y) && one.dx.same_bits(three.dx));
    EXPECT_TRUE(one.dq.same_bits(three.dq) && one.dk.same_bits(three.dk));
  }
}

/// A NaN in one key head makes this head NaN, or all key heads of the token if they are one group.
TEST(QkNorm, NanStaysInItsGroupAndShows) {
  for (const bool by_head : {true, false}) {
    NormedHeads<float> norm({2, 2, 4, by_head}, 3);
    norm.x(1, 9) = poison<float>();
    norm.run();
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t c = 0; c < norm.shape.width(); ++c) {
        const bool shows = t == 1 && c >= 8 && c < (by_head ? 12 : 16);
        EXPECT_EQ(is_nan(norm.y.at(t, c)), shows) << t << ' ' << c;
        EXPECT_EQ(is_nan(norm.dx.at(t, c)), shows) << t << ' ' << c;
      }
    }
    for (const double value : norm.dq.flat()) EXPECT_FALSE(is_nan(value));
  }
}

TEST(QkNorm, RefusesOtherExtents) {
  NormedHeads<float> norm({2, 1, 4, true}, 3);
  norm.q_weight = Grid<float>(1, 8);
  EXPECT_THROW(norm.run(), Error);
}

}  // namespace
}  // namespace lyceum

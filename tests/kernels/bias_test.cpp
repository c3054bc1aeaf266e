#include "kernels/bias.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class T>
class BiasTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(BiasTest, Types);

TYPED_TEST(BiasTest, AgreesWithDoubleOnOddSizes) {
  using T = TypeParam;
  for (const auto& [rows, cols] : {std::pair{1, 1}, {0, 5}, {7, 33}, {600, 64}, {341, 97}}) {
    const auto bias = Grid<T>::random(1, cols, "bias"), x = Grid<T>::random(rows, cols, "x", 8);
    const auto before = Grid<Accumulator<T>>::random(1, cols, "before");
    std::vector<double> sums = before.flat(), biased;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        biased.push_back(x.at(r, c) + bias.at(0, c));
        sums[static_cast<std::size_t>(c)] += x.at(r, c);
      }
    }
    Grid<T> first = x;
    Grid<Accumulator<T>> first_sum = before;
    for (const int threads : {1, 3}) {
      Grid<T> y = x;
      Grid<Accumulator<T>> d_bias = before;
      launch_on(threads, AddBias<T>{.bias = bias.span(), .y = y.matrix()});
      launch_on(threads, BiasGrad<T>{.dy = x.matrix(), .d_bias = d_bias.span()});
      expect_close(y, biased);
      expect_close(d_bias, sums, 1e-5);
      if (threads == 1) {
        first = y;
        first_sum = d_bias;
      }
      EXPECT_TRUE(y.same_bits(first) && d_bias.same_bits(first_sum));
    }
  }
}

TEST(Bias, NanShows) {
  auto x = Grid<float>::zeros(3, 5);
  x(1, 2) = poison<float>();
  auto d_bias = Grid<float>::zeros(1, 5);
  launch_on(1, BiasGrad<float>{.dy = x.matrix(), .d_bias = d_bias.span()});
  for (std::int64_t c = 0; c < 5; ++c) EXPECT_EQ(is_nan(d_bias.at(0, c)), c == 2);
}

TEST(Bias, RefusesOtherExtents) {
  auto x = Grid<float>::zeros(3, 5), bias = Grid<float>::zeros(1, 4);
  EXPECT_THROW(launch_on(1, AddBias<float>{.bias = bias.span(), .y = x.matrix()}), Error);
  EXPECT_THROW(launch_on(1, BiasGrad<float>{.dy = x.matrix(), .d_bias = bias.span()}), Error);
}

}  // namespace
}  // namespace lyceum

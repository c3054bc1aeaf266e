#include "kernels/block_diagonal.h"

#include <tuple>

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class T>
class BlockDiagonalTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(BlockDiagonalTest, Types);

TYPED_TEST(BlockDiagonalTest, FollowsTheFormulas) {
  using T = TypeParam;
  using A = Accumulator<T>;
  // On a CPU, blocks of up to 16, up to 31 and more elements are multiplied in different ways.
  for (const auto& [rows, blocks, b] : {std::tuple{0, 3, 2},
                                        {1, 1, 1},
                                        {5, 1, 8},
                                        {33, 40, 3},
                                        {7, 16, 12},
                                        {70, 17, 16},
                                        {66, 3, 20},
                                        {0, 2, 32},
                                        {65, 3, 33},
                                        {260, 2, 70}}) {
    for (const BlockOrder order : {BlockOrder::neighbours, BlockOrder::strided}) {
      const std::int64_t cols = blocks * b, width = b, count = blocks;
      const auto x = Grid<T>::random(rows, cols, "x", 1), dy = Grid<T>::random(rows, cols, "dy", 2);
      const auto weights = Grid<T>::random(cols, width, "weights", 1);
      const auto start = Grid<A>::random(cols, width, "start", 1);
      const auto element = [&](std::int64_t g, std::int64_t c) {
        return order == BlockOrder::neighbours ? g * width + c : g + c * count;
      };
      std::vector<double> y(static_cast<std::size_t>(rows * cols)), dx(y.size()), d_weights;
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t g = 0; g < count; ++g) {
          for (std::int64_t r = 0; r < width; ++r) {
            for (std::int64_t c = 0; c < width; ++c) {
              const double w = weights.at(g * width + r, c);
              y[static_cast<std::size_t>(t * cols + element(g, r))] += w * x.at(t, element(g, c));
              dx[static_cast<std::size_t>(t * cols + element(g, c))] += w * dy.at(t, element(g, r));
            }
          }
        }
      }
      for (std::int64_t row = 0; row < cols; ++row) {
        for (std::int64_t c = 0; c < width; ++c) {
          const std::int64_t g = row / width, r = row % width;
          double sum = start.at(row, c);
          for (std::int64_t t = 0; t < rows; ++t) sum += dy.at(t, element(g, r)) * x.at(t, element(g, c));
          d_weights.push_back(sum);
        }
      }
      const auto run_on = [&](int threads) {
        std::tuple results{Grid<T>(rows, cols, 1), Grid<T>(rows, cols, 1), start};
        launch_on(threads, BlockDiagonal<T>{x.matrix(), weights.matrix(), order, false, std::get<0>(results).matrix()});
        launch_on(threads, BlockDiagonal<T>{dy.matrix(), weights.matrix(), order, true, std::get<1>(results).matrix()});
        launch_on(threads, BlockDiagonalWeightGrad<T>{dy.matrix(), x.matrix(), order, std::get<2>(results).matrix()});
        return results;
      };
      const auto one = run_on(1), three = run_on(3);
      expect_close(std::get<0>(one), y, 4 * tolerance_of<T>);
      expect_close(std::get<1>(one), dx, 4 * tolerance_of<T>);
      expect_close(std::get<2>(one), d_weights, 20 * tolerance_of<A>);
      EXPECT_TRUE(std::get<0>(one).gaps_untouched() && std::get<2>(one).gaps_untouched());
      EXPECT_TRUE(std::get<0>(one).same_bits(std::get<0>(three)) && std::get<1>(one).same_bits(std::get<1>(three)));
      EXPECT_TRUE(std::get<2>(one).same_bits(std::get<2>(three)));
    }
  }
}

TEST(BlockDiagonal, RefusesWhatDoesNotFit) {
  Grid<float> x(2, 6), weights(6, 4), y(2, 6);
  EXPECT_THROW(launch_on(1, BlockDiagonal<float>{x.matrix(), weights.matrix(), BlockOrder::strided, false, y.matrix()}),
               Error);
}

}  // namespace
}  // namespace lyceum

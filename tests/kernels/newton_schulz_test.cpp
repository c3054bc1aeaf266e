#include "kernels/newton_schulz.h"

#include <utility>

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class T>
class NewtonSchulzKernelsTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(NewtonSchulzKernelsTest, Types);

constexpr std::int64_t batches_of_matrices[][2] = {{1, 1}, {3, 5}, {2, 1024}, {5, 3001}, {0, 8}};

TYPED_TEST(NewtonSchulzKernelsTest, SumSquaresOfEveryMatrix) {
  for (const auto& [matrices, elements] : batches_of_matrices) {
    const auto x = Grid<TypeParam>::random(matrices, elements, "x", 2);
    auto sums = Grid<double>(matrices, flat_blocks_of(elements));
    std::vector<double> all(static_cast<std::size_t>(matrices), poison<double>());
    launch_on(2, SquaresOfBatch<TypeParam>{.x = x.matrix(), .sums = sums.matrix()});
    launch_on(2, SumRows{.x = std::as_const(sums).matrix(), .y = all});
    for (std::int64_t m = 0; m < matrices; ++m) {
      double expected = 0;
      for (std::int64_t i = 0; i < elements; ++i) expected += x.at(m, i) * x.at(m, i);
      EXPECT_TRUE(std::abs(all[static_cast<std::size_t>(m)] - expected) <= 1e-12 * expected) << matrices << elements;
    }
  }
}

TYPED_TEST(NewtonSchulzKernelsTest, NormalizeLeavesZerosAndKeepsNan) {
  using A = Accumulator<TypeParam>;
  for (const auto& [matrices, elements] : batches_of_matrices) {
    auto x = Grid<TypeParam>::random(matrices, elements, "x", 2);
    if (matrices > 1) {
      for (std::int64_t i = 0; i < elements; ++i) x(1, i) = TypeParam(0.0f);
    }
    const auto before = x;
    std::vector<double> squares;
    for (std::int64_t m = 0; m < matrices; ++m) squares.push_back(m == 1 ? 0 : m == 2 ? poison<double>() : 9.0);
    launch_on(2, NormalizeBatch<TypeParam>{.squares = squares, .eps = 0.5, .x = x.matrix()});
    for (std::int64_t m = 0; m < matrices; ++m) {
      for (std::int64_t i = 0; i < elements; ++i) {
        if (m == 2) {
          EXPECT_TRUE(is_nan(x.at(m, i)));
          continue;
        }
        const double expected = to_double(
            static_cast<TypeParam>(static_cast<A>(before.at(m, i)) *
                                   static_cast<A>(1 / (std::sqrt(squares[static_cast<std::size_t>(m)]) + 0.5))));
        EXPECT_EQ(x.at(m, i), expected);
      }
    }
  }
}

TYPED_TEST(NewtonSchulzKernelsTest, CombinesAndRoundsOnce) {
  using A = Accumulator<TypeParam>;
  for (const std::int64_t count : {0, 1, 1000, 70001}) {
    const auto z = Grid<A>::random(1, count, "z");
    auto y = Grid<TypeParam>::random(1, count, "y");
    const auto before = y;
    launch_on(2, Combine<TypeParam>{.a = -1.5, .b = 0.3, .z = z.values, .y = y.values});
    for (std::int64_t i = 0; i < count; ++i) {
      const double expected = -1.5 * before.at(0, i) + 0.3 * z.at(0, i);
      const double tolerance = std::is_same_v<TypeParam, bfloat16> ? 4e-3 : 1e-6;
      EXPECT_TRUE(std::abs(y.at(0, i) - expected) <= tolerance * (1 + std::abs(expected))) << i;
    }
  }
}

}  // namespace
}  // namespace lyceum

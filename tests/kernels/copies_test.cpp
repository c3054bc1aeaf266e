#include "kernels/copies.h"

#include <tuple>

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class T>
class CopiesTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(CopiesTest, Types);

/// Some tokens choose several copy experts, some none.
TYPED_TEST(CopiesTest, FollowTheFormulas) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const auto& [tokens, hidden, k] : {std::tuple{0, 3, 2}, {1, 1, 1}, {7, 33, 3}, {341, 129, 4}}) {
    const std::int64_t first = 4;
    const auto x = Grid<T>::random(tokens, hidden, "x", 3), dy = Grid<T>::random(tokens, hidden, "dy", 1);
    const auto gate = Grid<A>::random(tokens, k, "gate", 2);
    Grid<std::int32_t> index(tokens, k, 1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < k; ++j) index(t, j) = static_cast<std::int32_t>((t * 5 + j * 2) % 8 - 1);
    }
    std::vector<double> y, d_gate;
    for (std::int64_t t = 0; t < tokens; ++t) {
      double sum = 0, dot = 0;
      for (std::int64_t j = 0; j < k; ++j) sum += index(t, j) >= first ? gate.at(t, j) : 0;
      for (std::int64_t c = 0; c < hidden; ++c) {
        y.push_back(sum * x.at(t, c));
        dot += dy.at(t, c) * x.at(t, c);
      }
      for (std::int64_t j = 0; j < k; ++j) d_gate.push_back(index(t, j) >= first ? dot : 0);
    }
    const auto run_on = [&](int threads) {
      std::pair<Grid<T>, Grid<A>> results{Grid<T>(tokens, hidden, 2), Grid<A>(tokens, k, 1)};
      launch_on(threads, CopyRows<T>{.x = x.matrix(),
                                     .index = index.matrix(),
                                     .gate = gate.matrix(),
                                     .first = first,
                                     .y = results.first.matrix()});
      launch_on(threads, CopyRowsBackward<T>{.x = x.matrix(),
                                             .dy = dy.matrix(),
                                             .index = index.matrix(),
                                             .first = first,
                                             .d_gate = results.second.matrix()});
      return results;
    };
    const auto one = run_on(1), three = run_on(3);
    expect_close(one.first, y, tolerance_of<T>);
    expect_close(one.second, d_gate, 20 * tolerance_of<A>);
    EXPECT_TRUE(one.first.gaps_untouched() && one.second.gaps_untouched());
    EXPECT_TRUE(one.first.same_bits(three.first) && one.second.same_bits(three.second));
  }
}

TEST(Copies, RefuseWhatDoesNotFit) {
  const auto x = Grid<float>::random(3, 2, "x");
  const auto gate = Grid<float>::random(3, 2, "gate");
  Grid<std::int32_t> index = Grid<std::int32_t>::zeros(3, 1, 0);
  Grid<float> y(3, 2);
  EXPECT_THROW(
      launch_on(1,
                CopyRows<float>{
                    .x = x.matrix(), .index = index.matrix(), .gate = gate.matrix(), .first = 0, .y = y.matrix()}),
      Error);
}

}  // namespace
}  // namespace lyceum

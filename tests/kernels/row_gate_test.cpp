#include "kernels/row_gate.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class T>
class RowGateTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(RowGateTest, Types);

TYPED_TEST(RowGateTest, AgreesWithDoubleOnOddSizes) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const auto& [rows, cols] : {std::pair{1, 1}, {0, 5}, {7, 33}, {65, 64}, {34, 297}}) {
    const auto x = Grid<T>::random(rows, cols, "x", 8), dy = Grid<T>::random(rows, cols, "dy", 8);
    const auto logits = Grid<A>::random(1, rows, "logits", 0, 3);
    std::vector<double> y, dx, d_logits;
    for (std::int64_t r = 0; r < rows; ++r) {
      const double gate = 1 / (1 + std::exp(-logits.at(0, r)));
      double dot = 0;
      for (std::int64_t c = 0; c < cols; ++c) {
        y.push_back(gate * x.at(r, c));
        dx.push_back(gate * dy.at(r, c));
        dot += dy.at(r, c) * x.at(r, c);
      }
      d_logits.push_back(dot * gate * (1 - gate));
    }
    Grid<T> made(rows, cols, 8), d_made(rows, cols, 8);
    Grid<A> d_made_logits(1, rows);
    launch_on(2, RowGateForward<T>{.x = x.matrix(), .logits = logits.span(), .y = made.matrix()});
    launch_on(2, RowGateBackward<T>{.x = x.matrix(),
                                    .dy = dy.matrix(),
                                    .logits = logits.span(),
                                    .dx = d_made.matrix(),
                                    .d_logits = d_made_logits.span()});
    expect_close(made, y);
    expect_close(d_made, dx);
    expect_close(d_made_logits, d_logits, 1e-5);
  }
}

TEST(RowGate, IsOpenShutOrNan) {
  const auto x = Grid<float>::from(3, 1, {2, 3, 4});
  const Grid<float> logits = Grid<float>::from(1, 3, {1e30, -1e30, std::numeric_limits<double>::quiet_NaN()});
  Grid<float> y(3, 1), dx(3, 1), d_logits(1, 3);
  launch_on(1, RowGateForward<float>{.x = x.matrix(), .logits = logits.span(), .y = y.matrix()});
  launch_on(
      1,
      RowGateBackward<float>{
          .x = x.matrix(), .dy = x.matrix(), .logits = logits.span(), .dx = dx.matrix(), .d_logits = d_logits.span()});
  EXPECT_EQ(y.at(0, 0), 2);
  EXPECT_EQ(y.at(1, 0), 0);
  EXPECT_TRUE(is_nan(y.at(2, 0)) && is_nan(dx.at(2, 0)) && is_nan(d_logits.at(0, 2)));
  EXPECT_EQ(d_logits.at(0, 0), 0);
  EXPECT_EQ(d_logits.at(0, 1), 0);
}

TEST(RowGate, RefusesOtherExtents) {
  Grid<float> x(3, 2), y(3, 3), logits(1, 3);
  EXPECT_THROW(launch_on(1, RowGateForward<float>{.x = x.matrix(), .logits = logits.span(), .y = y.matrix()}), Error);
}

}  // namespace
}  // namespace lyceum

#include "kernels/balance.h"

#include "support/finite_difference.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

constexpr std::int64_t experts = 7, top_k = 2, seq_len = 12;
const std::vector<std::int32_t> order{4, 0, 6, 1, 2, 3, 5};  // devices {4, 0}, {6}, {1, 2, 3, 5}
const std::vector<std::int64_t> first{0, 2, 3, 7};

template <class A>
struct Problem {
  Grid<A> count, probability, expert_slope, device_slope;
  std::vector<A> expert_loss{A(-7)}, device_loss{A(-7)};

  explicit Problem(std::int64_t sequences)
      : count(sequences, experts, 2),
        probability(Grid<A>::random(sequences, experts, "P", 1)),
        expert_slope(sequences, experts, 3),
        device_slope(sequences, experts) {
    for (std::int64_t s = 0; s < sequences; ++s) {
      for (std::int64_t i = 0; i < experts; ++i) count(s, i) = static_cast<A>((5 * s + 3 * i) % 9);
    }
  }
  void run() {
    launch_on(1, BalanceLosses<A>{count.matrix(), probability.matrix(), order, first, top_k, seq_len, 0.3, 0.7,
                                  expert_slope.matrix(), device_slope.matrix(), expert_loss, device_loss});
  }
  double f(std::int64_t s, std::int64_t i) const { return count.at(s, i) * experts / double(top_k * seq_len); }
};

template <class A>
class BalanceTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(BalanceTest, Types);

TYPED_TEST(BalanceTest, LossesAndSlopesFollowThePapersFormula) {
  for (const std::int64_t sequences : {0, 1, 3, 300}) {
    Problem<TypeParam> problem(sequences);
    problem.run();
    double expert_loss = 0, device_loss = 0;
    std::vector<double> expert_slope, device_slope(static_cast<std::size_t>(sequences * experts));
    for (std::int64_t s = 0; s < sequences; ++s) {
      for (std::int64_t i = 0; i < experts; ++i) {
        expert_loss += 0.3 * problem.f(s, i) * problem.probability.at(s, i);
        expert_slope.push_back(0.3 * problem.f(s, i) / seq_len);
      }
      for (std::size_t d = 0; d + 1 < first.size(); ++d) {
        double f = 0, p = 0;
        for (auto at = static_cast<std::size_t>(first[d]); at < static_cast<std::size_t>(first[d + 1]); ++at) {
          f += problem.f(s, order[at]) / static_cast<double>(first[d + 1] - first[d]);
          p += problem.probability.at(s, order[at]);
        }
        device_loss += 0.7 * f * p;
        for (auto at = static_cast<std::size_t>(first[d]); at < static_cast<std::size_t>(first[d + 1]); ++at) {
          device_slope[static_cast<std::size_t>(s * experts + order[at])] = 0.7 * f / seq_len;
        }
      }
    }
    const double tolerance = 100 * tolerance_of<TypeParam> * static_cast<double>(sequences + 1);
    EXPECT_NEAR(to_double(problem.expert_loss[0]), expert_loss, tolerance);
    EXPECT_NEAR(to_double(problem.device_loss[0]), device_loss, tolerance);
    expect_close(problem.expert_slope, expert_slope);
    expect_close(problem.device_slope, device_slope);
    EXPECT_TRUE(problem.expert_slope.gaps_untouched());
  }
}

TYPED_TEST(BalanceTest, MixesWhatIsThere) {
  using A = TypeParam;
  const std::vector<A> a{1, 2, 3}, b{10, 20, 30}, two{2}, half{A(0.5)};
  const std::span<const A> none;
  std::vector<A> y(3, A(-7));
  launch_on(1, MixSlopes<A>{a, b, two, half, y});
  EXPECT_EQ(y, (std::vector<A>{7, 14, 21}));
  launch_on(1, MixSlopes<A>{a, b, none, half, y});
  EXPECT_EQ(y, (std::vector<A>{5, 10, 15}));
  launch_on(1, MixSlopes<A>{a, b, two, none, y});
  EXPECT_EQ(y, (std::vector<A>{2, 4, 6}));
}

TYPED_TEST(BalanceTest, EveryRowBecomesTheMean) {
  const std::vector<double> sums{3, 6, 9, 4};
  Grid<TypeParam> y(2, 3, 1);
  launch_on(1, SpreadMean<TypeParam>{sums, y.matrix()});
  EXPECT_EQ(y.flat(), (std::vector<double>{0.75, 1.5, 2.25, 0.75, 1.5, 2.25}));
  EXPECT_TRUE(y.gaps_untouched());
}

TYPED_TEST(BalanceTest, RowsAreScaledEachByItsOwn) {
  auto x = Grid<TypeParam>::random(33, 7, "x", 2);
  const auto by = Grid<TypeParam>::random(1, 33, "by");
  const std::vector<TypeParam> factor{TypeParam(0.25)};
  std::vector<double> expected;
  for (std::int64_t r = 0; r < 33; ++r) {
    for (std::int64_t c = 0; c < 7; ++c) expected.push_back(3 * 0.25 * by.at(0, r) * x.at(r, c));
  }
  launch_on(1, ScaleRows<TypeParam>{x.matrix(), by.span(), factor, 3});
  expect_close(x, expected);
  EXPECT_TRUE(x.gaps_untouched());
}

}  // namespace
}  // namespace lyceum

#include "kernels/balance_bias.h"

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class A>
class BalanceBiasTest : public testing::Test {};
using ScoreTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(BalanceBiasTest, ScoreTypes);

TYPED_TEST(BalanceBiasTest, MovesTowardsEvenCounts) {
  using A = TypeParam;
  for (const std::int64_t experts : {1, 5, 300}) {
    auto counts = Grid<std::int64_t>::zeros(2, experts, 1);
    for (std::int64_t e = 0; e < experts; ++e) {
      counts(0, e) = e % 5;
      counts(1, e) = e % 3 == 1 ? 2 : 0;
    }
    std::int64_t sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += counts(0, e) + counts(1, e);
    StepVerdict verdict{};
    std::vector<A> bias(static_cast<std::size_t>(experts), A(0.5)), expected;
    for (std::int64_t e = 0; e < experts; ++e) {
      const double own = static_cast<double>(counts(0, e) + counts(1, e)),
                   mean = static_cast<double>(sum) / static_cast<double>(experts);
      const int sign = (own < mean) - (own > mean);
      expected.push_back(A(0.5 + 0.25 * sign));
    }
    launch_on(1, BalanceBias<A>{counts.matrix(), bias, 0.25, {&verdict, 1}});
    EXPECT_EQ(bias, expected);
    verdict.skip = 1;
    launch_on(1, BalanceBias<A>{counts.matrix(), bias, 0.25, {&verdict, 1}});
    EXPECT_EQ(bias, expected);
  }
}

}  // namespace
}  // namespace lyceum

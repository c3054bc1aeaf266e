#include "kernels/weight_average.h"

#include <cmath>

#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

template <class A>
class WeightAverageTest : public testing::Test {};
using AverageTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(WeightAverageTest, AverageTypes);

TYPED_TEST(WeightAverageTest, MovesTowardsTheWeights) {
  using A = TypeParam;
  for (const std::size_t count : {1, 255, 40001}) {
    for (const int threads : {1, 3}) {
      std::vector<A> weights(count), average(count);
      std::vector<double> expected(count);
      const double decay = 0.97;
      for (std::size_t i = 0; i < count; ++i) {
        average[i] = static_cast<A>(std::sin(static_cast<double>(i)));
        expected[i] = average[i];
      }
      StepVerdict verdict{.gradient_scale = 1, .skip = 0};
      for (int step = 0; step < 16; ++step) {
        verdict.skip = step % 5 == 4 ? 1 : 0;
        for (std::size_t i = 0; i < count; ++i) {
          weights[i] = static_cast<A>(std::cos(static_cast<double>(i) * (1 + step)));
          if (verdict.skip == 0) expected[i] = decay * expected[i] + (1 - decay) * static_cast<double>(weights[i]);
        }
        launch_on(threads, AverageWeights<A>{weights, average, decay, {&verdict, 1}});
      }
      const double tolerance = sizeof(A) == 4 ? 2e-6 : 1e-14;
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(std::abs(static_cast<double>(average[i]) - expected[i]) <= tolerance) << i;
      }
    }
  }
}

TYPED_TEST(WeightAverageTest, OfConstantWeightsKeepsTheirBits) {
  using A = TypeParam;
  std::vector<A> weights;
  for (int i = 0; i < 1000; ++i) weights.push_back(static_cast<A>(std::sin(i)));
  std::vector<A> average = weights;
  const StepVerdict verdict{.gradient_scale = 1, .skip = 0};
  for (const double decay : {0.999, 0.0}) launch_on(1, AverageWeights<A>{weights, average, decay, {&verdict, 1}});
  EXPECT_EQ(average, weights);
}

TYPED_TEST(WeightAverageTest, RefusesOtherLengths) {
  using A = TypeParam;
  std::vector<A> weights(3), average(4);
  const StepVerdict verdict{};
  EXPECT_THROW(launch_on(1, AverageWeights<A>{weights, average, 0.5, {&verdict, 1}}), Error);
}

}  // namespace
}  // namespace lyceum

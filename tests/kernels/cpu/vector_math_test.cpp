#include "kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace lyceum {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(FastExp, IsWithinTwoUnitsInTheLastPlace) {
  for (float x = -87.3f; x < 88.7f; x += 0.00037f) {
    const double exact = std::exp(static_cast<double>(x));
    const double unit = exact * std::numeric_limits<float>::epsilon();
    ASSERT_LE(std::abs(fast_exp(x) - exact), 2 * unit) << "x = " << x;
  }
}

TEST(FastExp, UnderflowsThroughDenormalsAndOverflowsToInfinity) {
  for (float x = -103.0f; x < -87.3f; x += 0.01f) {
    const double smallest = std::numeric_limits<float>::denorm_min();
    ASSERT_LE(std::abs(fast_exp(x) - std::exp(static_cast<double>(x))), 2 * smallest + 1e-44) << "x = " << x;
  }
  EXPECT_EQ(fast_exp(-105.0f), 0.0f);
  EXPECT_EQ(fast_exp(-1e30f), 0.0f);
  EXPECT_EQ(fast_exp(88.73f), infinity);
  EXPECT_EQ(fast_exp(1e30f), infinity);
}

TEST(FastExp, TreatsSpecialValuesAsTheLibraryDoes) {
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
  EXPECT_EQ(fast_exp(-0.0f), 1.0f);
  EXPECT_EQ(fast_exp(infinity), infinity);
  EXPECT_EQ(fast_exp(-infinity), 0.0f);
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(fast_exp(-std::numeric_limits<float>::quiet_NaN())));
  EXPECT_DOUBLE_EQ(fast_exp(1.0), std::exp(1.0));
}

TEST(FastExp, GivesTheSameInVectorLoops) {
  std::vector<float> x(1003), y(1003);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.19f - 104.5f;
  x[17] = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = fast_exp(x[i]);
  EXPECT_TRUE(std::isnan(y[17]));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i == 17) continue;
    EXPECT_NEAR(y[i], std::exp(x[i]), 1e-6f * std::exp(x[i]) + 1e-44f) << "x = " << x[i];
  }
}

TEST(FastErfc, IsNearItsValueOnBothSides) {
  for (float x = -6; x < 9; x += 0.00037f) {
    const double exact = std::erfc(static_cast<double>(x));
    const double allowed = std::max(4e-7, static_cast<double>(x) * x * 2e-7) * exact;
    ASSERT_LE(std::abs(fast_erfc(x) - exact), allowed) << "x = " << x;
  }
  EXPECT_EQ(fast_erfc(-infinity), 2.0f);
  EXPECT_EQ(fast_erfc(infinity), 0.0f);
  EXPECT_EQ(fast_erfc(3e38f), 0.0f);
  EXPECT_TRUE(std::isnan(fast_erfc(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_DOUBLE_EQ(fast_erfc(1.0), std::erfc(1.0));
}

TEST(FastLog1p, IsWithinTwoUnitsInTheLastPlaceOfItsRange) {
  for (int i = 0; i <= 1000000; ++i) {
    const float x = static_cast<float>(i) * 1e-6f;
    const double exact = std::log1p(static_cast<double>(x));
    ASSERT_LE(std::abs(fast_log1p(x) - exact), 2 * exact * std::numeric_limits<float>::epsilon()) << "x = " << x;
  }
  for (float x = 1.0f; x > 1e-37f; x *= 0.93f) {
    const double exact = std::log1p(static_cast<double>(x));
    ASSERT_LE(std::abs(fast_log1p(x) - exact), 2 * exact * std::numeric_limits<float>::epsilon()) << "x = " << x;
  }
  EXPECT_TRUE(std::isnan(fast_log1p(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastSoftplusAndLogistic, AreWithinAFewUnitsInTheLastPlace) {
  const auto expect_close = [](float found, double exact, float x) {
    const double smallest = std::numeric_limits<float>::denorm_min();
    ASSERT_LE(std::abs(found - exact), 4 * exact * std::numeric_limits<float>::epsilon() + 2 * smallest) << x;
  };
  for (float x = -103.0f; x < 103.0f; x += 0.0017f) {
    const double e = std::exp(-std::abs(double{x}));
    expect_close(fast_softplus(x), std::max(double{x}, 0.0) + std::log1p(e), x);
    expect_close(fast_logistic(x), (x < 0 ? e : 1) / (1 + e), x);
  }
  EXPECT_EQ(fast_softplus(-infinity), 0.0f);
  EXPECT_EQ(fast_softplus(infinity), infinity);
  EXPECT_EQ(fast_logistic(-infinity), 0.0f);
  EXPECT_EQ(fast_logistic(infinity), 1.0f);
  EXPECT_TRUE(std::isnan(fast_softplus(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(fast_logistic(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace lyceum

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/random.h"

namespace lyceum {

using ScalarFunction = std::function<double(const std::vector<double>&)>;

/// Returns df/dx at `x` from central differences of two step widths, extrapolated [Richardson 1911]. The error is
/// O(step⁴).
inline std::vector<double> finite_difference(const ScalarFunction& f, std::vector<double> x, double step = 1e-3) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    const auto slope = [&](double width) {
      x[i] = at + width;
      const double above = f(x);
      x[i] = at - width;
      const double below = f(x);
      return (above - below) / (2 * width);
    };
    gradient[i] = (4 * slope(step / 2) - slope(step)) / 3;
    x[i] = at;
  }
  return gradient;
}

/// Expects `gradient` to equal finite_difference(f, x, step). Each component may differ by `tolerance` times the
/// largest finite difference, plus the error that rounding of f causes in the differences. NaN fails.
inline void expect_gradient(const ScalarFunction& f, const std::vector<double>& x, const std::vector<double>& gradient,
                            double tolerance = 1e-6, double step = 1e-3) {
  ASSERT_EQ(gradient.size(), x.size());
  const std::vector<double> expected = finite_difference(f, x, step);
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  const double allowed = tolerance * largest + 1e-14 / step * std::max(1.0, std::abs(f(x)));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(std::abs(gradient[i] - expected[i]) <= allowed)
        << "component " << i << ": " << gradient[i] << ", by finite differences " << expected[i];
  }
}

/// Does what expect_gradient() does, for gradients with many components: compares derivatives along random unit
/// vectors, whose components are ±1/√n. A single wrong component changes the derivatives along all of them; it is found
/// if its error exceeds `tolerance` times the largest component. Errors of several components may cancel along some
/// directions, hence many directions.
inline void expect_gradient_along(int directions, const ScalarFunction& f, const std::vector<double>& x,
                                  const std::vector<double>& gradient, double tolerance = 1e-6, double step = 1e-3) {
  ASSERT_EQ(gradient.size(), x.size());
  const double length = std::sqrt(static_cast<double>(x.size()));
  double largest = 0;
  for (const double value : gradient) largest = std::max(largest, std::abs(value));
  ASSERT_TRUE(largest > 0 && std::isfinite(largest)) << "the largest component is " << largest;
  const double allowed = tolerance * largest / length + 1e-14 / step * std::max(1.0, std::abs(f(x)));
  const Philox random(3, "directions");
  for (int d = 0; d < directions; ++d) {
    std::vector<double> direction(x.size());
    double expected = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint64_t index = static_cast<std::uint64_t>(d) * x.size() + i;
      direction[i] = (random.below(2, index) == 0 ? -1 : 1) / length;
      expected += gradient[i] * direction[i];
    }
    const auto along = [&](const std::vector<double>& at) {
      std::vector<double> moved = x;
      for (std::size_t i = 0; i < x.size(); ++i) moved[i] += at[0] * direction[i];
      return f(moved);
    };
    const double difference = finite_difference(along, {0}, step)[0];
    EXPECT_TRUE(std::abs(difference - expected) <= allowed)
        << "direction " << d << ": " << expected << ", by finite differences " << difference;
  }
}

}  // namespace lyceum

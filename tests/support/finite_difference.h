#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

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

}  // namespace lyceum

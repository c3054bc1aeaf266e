#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "core/tensor.h"

namespace lyceum {

template <class T>
T poison() {
  return static_cast<T>(std::numeric_limits<float>::quiet_NaN());
}
template <>
inline std::int32_t poison() {
  return -1000000;
}
template <>
inline std::int64_t poison() {
  return -1000000;
}

inline double to_double(bfloat16 value) { return static_cast<double>(static_cast<float>(value)); }
template <class T>
double to_double(T value) {
  return static_cast<double>(value);
}

/// A matrix for tests that owns its elements. Elements are initially poison (NaN, or −1000000 for integers). With `gap`
/// > 0 there are that many poisoned elements after each row.
template <class T>
struct Grid {
  std::int64_t rows, cols, stride;
  std::vector<T> values;

  Grid(std::int64_t rows, std::int64_t cols, std::int64_t gap = 0)
      : rows(rows), cols(cols), stride(cols + gap), values(static_cast<std::size_t>(rows * stride), poison<T>()) {}

  static Grid random(std::int64_t rows, std::int64_t cols, std::string_view purpose, std::int64_t gap = 0,
                     double deviation = 1) {
    Grid grid(rows, cols, gap);
    const Philox normal(1, purpose);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        grid(r, c) =
            static_cast<T>(static_cast<float>(deviation * normal.normal(static_cast<std::uint64_t>(r * cols + c))));
      }
    }
    return grid;
  }
  static Grid zeros(std::int64_t rows, std::int64_t cols, std::int64_t gap = 0) {
    Grid grid(rows, cols, gap);
    for (std::int64_t r = 0; r < rows; ++r) std::fill_n(grid.values.data() + r * grid.stride, cols, T{});
    return grid;
  }
  /// Returns a grid of the elements of `flat` in row-major order.
  static Grid from(std::int64_t rows, std::int64_t cols, const std::vector<double>& flat) {
    Grid grid(rows, cols);
    for (std::size_t i = 0; i < flat.size(); ++i) grid.values[i] = static_cast<T>(flat[i]);
    return grid;
  }

  T& operator()(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * stride + c)]; }
  double at(std::int64_t r, std::int64_t c) const {
    return to_double(values[static_cast<std::size_t>(r * stride + c)]);
  }
  Matrix<T> matrix() { return {values.data(), rows, cols, stride}; }
  Matrix<const T> matrix() const { return {values.data(), rows, cols, stride}; }
  std::span<T> span() { return values; }
  std::span<const T> span() const { return values; }

  std::vector<double> flat() const {
    std::vector<double> result;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) result.push_back(at(r, c));
    }
    return result;
  }
  Grid<double> widened() const { return Grid<double>::from(rows, cols, flat()); }
  /// True if both have the same bits, including the gaps between rows.
  bool same_bits(const Grid& other) const {
    return values.size() == other.values.size() &&
           (values.empty() || std::memcmp(values.data(), other.values.data(), values.size() * sizeof(T)) == 0);
  }
  /// True if the gaps between rows still contain poison.
  bool gaps_untouched() const {
    const T untouched = poison<T>();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = cols; c < stride; ++c) {
        if (std::memcmp(&values[static_cast<std::size_t>(r * stride + c)], &untouched, sizeof(T)) != 0) return false;
      }
    }
    return true;
  }
};

/// The allowed relative error of a result of type T: some roundings of T's accumulator and one of T.
template <class T>
constexpr double tolerance_of = 1e-12;
template <>
inline constexpr double tolerance_of<float> = 4e-6;
template <>
inline constexpr double tolerance_of<bfloat16> = 0.00393;  // 2⁻⁸, the largest error of rounding, and a little more

/// Expects every element to be within `tolerance` of the expected one, relative to that element or to a tenth of the
/// largest expected element. Expects gaps between rows to be untouched. NaN fails.
template <class T>
void expect_close(const Grid<T>& actual, const std::vector<double>& expected, double tolerance = tolerance_of<T>) {
  ASSERT_EQ(static_cast<std::size_t>(actual.rows * actual.cols), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  const std::vector<double> flat = actual.flat();
  for (std::size_t i = 0; i < flat.size(); ++i) {
    ASSERT_TRUE(std::abs(flat[i] - expected[i]) <= tolerance * std::max(std::abs(expected[i]), largest / 10))
        << "element " << i << " is " << flat[i] << ", expected " << expected[i];
  }
  EXPECT_TRUE(actual.gaps_untouched());
}

/// Returns Σ weight ⊙ values: a scalar function of a kernel's output whose gradient with respect to the output is
/// `weight`.
inline double weighted_sum(const std::vector<double>& values, const std::vector<double>& weight) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * weight[i];
  return sum;
}

inline bool is_nan(double value) { return std::isnan(value); }

}  // namespace lyceum

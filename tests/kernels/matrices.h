#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

namespace lyceum::test {

/// Returns a nearly normal random number of mean 0 and variance 1: the sum of four uniform numbers, which is cheaper
/// than Philox::normal.
inline float noise(const Philox& random, std::int64_t index) {
  double sum = -2;
  for (const std::uint32_t word : random.block(static_cast<std::uint64_t>(index))) sum += word * 0x1p-32;
  return static_cast<float>(sum * 1.7320508);
}

/// A matrix that owns its memory. Each row is followed by a gap of `gap` NaNs, which kernels must not write. Elements
/// are NaN at first.
template <class T>
class OwnedMatrix {
 public:
  OwnedMatrix(std::int64_t rows, std::int64_t cols, std::int64_t gap = 0)
      : values_(static_cast<std::size_t>(rows * (cols + gap)), T(std::numeric_limits<float>::quiet_NaN())),
        view_(values_.data(), rows, cols, cols + gap) {}
  OwnedMatrix(const OwnedMatrix&) = delete;
  OwnedMatrix& operator=(const OwnedMatrix&) = delete;

  /// Fills the matrix with random numbers of about unit size that are representable in `Like`, so that matrices of
  /// different types can have the same numbers.
  template <class Like = T>
  OwnedMatrix& randomise(std::string_view name) {
    const Philox random(1, name);
    for (std::int64_t r = 0; r < view_.rows; ++r) {
      for (std::int64_t c = 0; c < view_.cols; ++c) {
        const float value = noise(random, r * view_.cols + c);
        view_.row(r)[c] = static_cast<T>(static_cast<float>(static_cast<Like>(value)));
      }
    }
    return *this;
  }
  Matrix<T> view() { return view_; }
  bool gaps_untouched() const {
    for (std::int64_t r = 0; r < view_.rows; ++r) {
      for (std::int64_t c = view_.cols; c < view_.stride; ++c) {
        if (!std::isnan(static_cast<float>(view_.row(r)[c]))) return false;
      }
    }
    return true;
  }

 private:
  std::vector<T> values_;
  Matrix<T> view_;
};

inline double as_double(double value) { return value; }
inline double as_double(bfloat16 value) { return static_cast<float>(value); }

/// Fails the test unless every element of `actual` is within `tolerance` of `expected`. NaN fails.
template <class A, class B>
void expect_near(const Matrix<A>& actual, const Matrix<B>& expected, double tolerance) {
  ASSERT_EQ(actual.rows, expected.rows);
  ASSERT_EQ(actual.cols, expected.cols);
  for (std::int64_t r = 0; r < actual.rows; ++r) {
    for (std::int64_t c = 0; c < actual.cols; ++c) {
      const double value = as_double(actual.row(r)[c]);
      const double wanted = as_double(expected.row(r)[c]);
      ASSERT_TRUE(std::abs(value - wanted) <= tolerance)
          << "row " << r << ", column " << c << ": " << value << " instead of " << wanted;
    }
  }
}

template <class T>
bool same_bits(const Matrix<T>& a, const Matrix<T>& b) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    if (std::memcmp(a.row(r), b.row(r), static_cast<std::size_t>(a.cols) * sizeof(T)) != 0) return false;
  }
  return a.rows == b.rows && a.cols == b.cols;
}

}  // namespace lyceum::test

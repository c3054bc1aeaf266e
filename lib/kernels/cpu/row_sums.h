#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype.h"
#include "kernels/cpu/vector_math.h"

namespace lyceum {

/// Returns the largest element of a row. NaNs are ignored; −∞ if there is no number.
template <class T>
Accumulator<T> row_maximum(const T* x, std::int64_t cols) {
  using A = Accumulator<T>;
  A largest = -std::numeric_limits<A>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t c = 0; c < cols; ++c) {
    const A value = static_cast<A>(x[c]);
    largest = value > largest ? value : largest;
  }
  return largest;
}

/// Returns Σ exp(x − shift) over a row.
template <class T>
Accumulator<T> exp_sum(const T* x, std::int64_t cols, Accumulator<T> shift) {
  using A = Accumulator<T>;
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < cols; ++c) sum += fast_exp(static_cast<A>(x[c]) - shift);
  return sum;
}

/// Returns log Σ exp(x) over a row, without overflow. NaN if the row has a NaN or +∞, or only −∞.
template <class T>
Accumulator<T> log_sum_exp(const T* x, std::int64_t cols) {
  const Accumulator<T> largest = row_maximum(x, cols);
  return largest + std::log(exp_sum(x, cols, largest));
}

}  // namespace lyceum

#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace lyceum {

/// Returns Σ x² in double. The order of summation depends only on `count`.
template <class T>
double sum_of_squares(const T* x, std::int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(static_cast<Accumulator<T>>(x[i]));
    sum += value * value;
  }
  return sum;
}

}  // namespace lyceum

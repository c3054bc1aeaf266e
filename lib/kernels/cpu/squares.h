#pragma once

#include <cstdint>

namespace lyceum {

/// Returns Σ x² in double. The order of summation depends only on `count`.
template <class A>
double sum_of_squares(const A* x, std::int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace lyceum

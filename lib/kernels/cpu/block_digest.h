#pragma once

#include <cstdint>

#include "kernels/digest.h"

namespace lyceum {

/// Of `count` elements, the first of which has this place.
template <class T>
std::uint64_t digest_of_block(const T* x, std::int64_t count, std::int64_t place) {
  const auto elements = static_cast<std::int32_t>(count), first = static_cast<std::int32_t>(place);
  std::uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int32_t i = 0; i < elements; ++i) sum += digest_of_element(x[i], static_cast<std::uint32_t>(first + i));
  return sum;
}

}  // namespace lyceum

#pragma once

#include <cstdint>

#include "kernels/segments.h"

namespace lyceum {

/// Returns the segment that contains row `row`, padding included. `segments` is in device memory, and must contain the
/// row.
__device__ inline std::int64_t segment_of(const Segments& segments, std::int64_t row) {
  std::int64_t low = 0, high = segments.count();  // begin[low] ≤ row < begin[high]
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (segments.begin[middle] <= row ? low : high) = middle;
  }
  return low;
}

}  // namespace lyceum

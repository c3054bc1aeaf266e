#pragma once

#include <cstdint>

#include "kernels/segments.h"

namespace lyceum {

/// The segment that row `row` is in, padding included; `segments` is in the device's memory and has that row.
__device__ inline std::int64_t segment_of(const Segments& segments, std::int64_t row) {
  std::int64_t low = 0, high = segments.count();  // begin[low] ≤ row < begin[high]
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (segments.begin[middle] <= row ? low : high) = middle;
  }
  return low;
}

}  // namespace lyceum

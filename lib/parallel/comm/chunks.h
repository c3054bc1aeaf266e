#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

namespace lyceum {

/// Divides `bytes` bytes into chunks of at most 1 GiB, since MPI counts are ints, and calls `f(first, count)` for each
/// chunk in order.
template <class F>
void for_chunks(std::int64_t bytes, F&& f) {
  constexpr std::int64_t chunk_bytes = std::int64_t{1} << 30;
  for (std::int64_t first = 0; first < bytes; first += chunk_bytes) {
    f(first, static_cast<int>(std::min(chunk_bytes, bytes - first)));
  }
}

/// Returns the sum.
inline std::int64_t total(std::span<const std::int64_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace lyceum

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

namespace lyceum {

/// Maximum size of an MPI message in bytes, since MPI counts are ints.
constexpr std::int64_t max_message_bytes = std::int64_t{1} << 30;

/// Divides `bytes` bytes into chunks of at most max_message_bytes, and calls `f(first, count)` for each chunk in order.
template <class F>
void for_chunks(std::int64_t bytes, F&& f) {
  for (std::int64_t first = 0; first < bytes; first += max_message_bytes) {
    f(first, static_cast<int>(std::min(max_message_bytes, bytes - first)));
  }
}

/// Returns the number of MPI messages in which `bytes` bytes are sent, at least one.
constexpr std::int64_t messages_of(std::int64_t bytes) {
  return std::max<std::int64_t>(1, (bytes + max_message_bytes - 1) / max_message_bytes);
}

/// Returns the sum.
inline std::int64_t total(std::span<const std::int64_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace lyceum

#pragma once

#include <algorithm>
#include <cstdint>

namespace lyceum {

/// The indices [first, first + count).
struct Range {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
  bool operator==(const Range&) const = default;
};

/// Returns the intersection of `a` and `b`; its count is 0 if they are disjoint.
inline Range common(const Range& a, const Range& b) {
  const std::int64_t first = std::max(a.first, b.first);
  return {first, std::max<std::int64_t>(0, std::min(a.end(), b.end()) - first)};
}

/// Divides [0, size) into `parts` contiguous ranges whose sizes differ by at most one, the larger ones first, and
/// returns range `part`, 0 <= part < parts.
inline Range part_of(std::int64_t size, std::int64_t part, std::int64_t parts) {
  return {part * (size / parts) + std::min(part, size % parts), size / parts + (part < size % parts ? 1 : 0)};
}

}  // namespace lyceum

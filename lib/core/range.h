#pragma once

#include <algorithm>
#include <cstdint>

namespace lyceum {

/// Neighbours [first, first + count).
struct Range {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
  bool operator==(const Range&) const = default;
};

/// What `a` and `b` share; may be empty.
inline Range common(const Range& a, const Range& b) {
  const std::int64_t first = std::max(a.first, b.first);
  return {first, std::max<std::int64_t>(0, std::min(a.end(), b.end()) - first)};
}

/// Share `part` of `size` things that `parts` take in order, as even as the number allows: the first ones take one
/// more.
inline Range part_of(std::int64_t size, std::int64_t part, std::int64_t parts) {
  return {part * (size / parts) + std::min(part, size % parts), size / parts + (part < size % parts ? 1 : 0)};
}

}  // namespace lyceum

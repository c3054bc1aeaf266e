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

/// Share `part` of `size` things that `parts` take in order, as even as the number allows: the first ones take one
/// more.
inline Range part_of(std::int64_t size, std::int64_t part, std::int64_t parts) {
  return {part * (size / parts) + std::min(part, size % parts), size / parts + (part < size % parts ? 1 : 0)};
}

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <vector>

namespace lyceum {

/// Elements [first, first + count) of a unit's flat memory.
struct FlatRange {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
  bool operator==(const FlatRange&) const = default;
};

/// Ranges begin at multiples of this many elements: sums over blocks of that size then do not depend on the cut.
constexpr std::int64_t range_block = 1024;

/// Elements of each rank's part of `size`, in rank order: whole blocks, but for the last one, as evenly as they divide.
/// A rank may get none.
std::vector<std::int64_t> cut_evenly(std::int64_t size, int ranks);
/// One of them.
FlatRange cut_evenly(std::int64_t size, int ranks, int rank);

}  // namespace lyceum

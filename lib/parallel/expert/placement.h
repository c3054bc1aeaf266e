#pragma once

#include <cstdint>
#include <vector>

namespace lyceum {

/// Which rank of an expert group holds which experts of a layer.
struct Placement {
  std::vector<int> owner;           // [experts]
  std::vector<std::int32_t> order;  // [experts]: by owner, then by index
  std::vector<std::int64_t> first;  // [ranks + 1]: rank r holds order[first[r]] … order[first[r + 1] − 1]

  /// Runs of experts, as even as `experts` allows: the first ranks hold one more.
  static Placement contiguous(std::int64_t experts, int ranks);

  int ranks() const { return static_cast<int>(first.size()) - 1; }
  std::int64_t experts() const { return static_cast<std::int64_t>(owner.size()); }
  std::vector<std::int32_t> experts_of(int rank) const;
};

}  // namespace lyceum

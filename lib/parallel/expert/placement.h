#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lyceum {

/// Which rank of an expert group holds which experts of a layer; or which group of experts a balance loss counts as one
/// device.
struct Placement {
  std::vector<int> owner;           // [experts]
  std::vector<std::int32_t> order;  // [experts]: by owner, then by index
  std::vector<std::int64_t> first;  // [ranks + 1]: rank r holds order[first[r]] … order[first[r + 1] − 1]

  /// From the owner of every expert. Throws a usage Error where a rank owns none.
  static Placement of_owners(std::vector<int> owner, int ranks);
  /// Runs of experts, as even as `experts` allows: the first ranks hold one more.
  static Placement contiguous(std::int64_t experts, int ranks);
  /// A wide expert with a narrow one, so that every pair has the same width, and equally many pairs a rank [MoDSE].
  /// Throws a usage Error with pairs_problem().
  static Placement pairs(std::span<const std::int64_t> widths, int ranks);
  /// From the dearest expert on, each to the rank that has the least cost so far: the dearest rank has at most 4/3 of
  /// what the best placement would give it [Graham 1969, longest processing time first]. Costs: finite, not negative.
  static Placement by_cost(std::span<const double> costs, int ranks);

  int ranks() const { return static_cast<int>(first.size()) - 1; }
  std::int64_t experts() const { return static_cast<std::int64_t>(owner.size()); }
  /// In the order of their slots.
  std::span<const std::int32_t> experts_of(int rank) const;
  bool operator==(const Placement&) const = default;
};

/// Why experts of these widths do not lie in pairs of one width, equally many on each of `ranks`; empty where they do.
std::string pairs_problem(std::span<const std::int64_t> widths, int ranks);

}  // namespace lyceum

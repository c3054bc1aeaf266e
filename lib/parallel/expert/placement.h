#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lyceum {

/// The assignment of a layer's experts to the ranks of an expert group. Also used for the partition of experts into the
/// groups that a balance loss counts as devices.
struct Placement {
  std::vector<int> owner;           // [experts]: the rank of each expert
  std::vector<std::int32_t> order;  // [experts]: experts sorted by owner, then by slot: their order in a rank's memory
  std::vector<std::int64_t> first;  // [ranks + 1]: rank r holds order[first[r]] … order[first[r + 1] − 1]

  /// Makes a placement from the owner of every expert, which must be less than `ranks`. The slots of a rank are in
  /// ascending order of its experts. Throws a usage Error if a rank owns no expert, as the following functions do.
  static Placement of_owners(std::vector<int> owner, int ranks);
  /// Assigns consecutive experts to each rank, as evenly as possible; the first ranks have one more.
  static Placement contiguous(std::int64_t experts, int ranks);
  /// Forms pairs of a wide and a narrow expert, all pairs of the same total width, and assigns the same number of pairs
  /// to each rank [MoDSE]. Throws a usage Error with the text of pairs_problem() if that is impossible.
  static Placement pairs(std::span<const std::int64_t> widths, int ranks);
  /// Assigns experts in descending order of cost, each to the rank with the lowest cost so far. The maximum cost of a
  /// rank is at most 4/3 of the optimum [Graham 1969, longest processing time first]. Costs must be finite and not
  /// negative.
  static Placement by_cost(std::span<const double> costs, int ranks);

  int ranks() const { return static_cast<int>(first.size()) - 1; }
  std::int64_t experts() const { return static_cast<std::int64_t>(owner.size()); }
  /// Returns the experts of a rank in the order of their slots.
  std::span<const std::int32_t> experts_of(int rank) const;
  bool operator==(const Placement&) const = default;
};

/// Returns the reason why experts of these widths cannot form pairs of equal width, with the same number of pairs on
/// each rank; empty if they can.
std::string pairs_problem(std::span<const std::int64_t> widths, int ranks);

}  // namespace lyceum

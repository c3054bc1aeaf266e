#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/range.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// The flat memory of the experts of a layer on all ranks that hold parts of them. A rank's unit consists of the slots
/// of its experts, in the order of Placement::order. The ranks form a group: rank copy · expert ranks + r holds the
/// experts of expert rank r.
struct ExpertMemory {
  std::span<const std::int64_t> elements;  // [experts]: size of each expert's slot, with padding after parameters
  int copies = 1;                          // ranks that hold the same experts
  bool sharded = false;                    // each copy holds only its part of a unit, see cut_evenly()
};

/// Consecutive elements of a unit that a rank sends to, or receives from, another rank.
struct ExpertTransfer {
  int peer;     // rank of the group
  Range range;  // of this rank's unit
  bool operator==(const ExpertTransfer&) const = default;
};

/// The transfers of one rank. They are sorted by peer. The elements that a rank sends to another are in the order in
/// which that one receives them.
struct ExpertTransfers {
  std::vector<ExpertTransfer> sent, received;
};

/// Returns the elements of a rank's unit before the first slot, before the second one, …, and before the end.
std::vector<std::int64_t> slot_offsets(const Placement& placement, int rank, std::span<const std::int64_t> elements);

/// Returns the transfers of rank `rank` of the group that make `after` the placement of the layer: every element of an
/// expert with another owner is sent once to each copy that needs it, by the only rank that has it or, if copies are
/// not sharded, by the rank with the same number among the copies. `part`: the elements of each expert to be sent,
/// counted from the beginning of its slot. An expert that stays must keep its slot, and the slots of both placements
/// must have the same sizes. Local; the ranks of a group agree.
ExpertTransfers expert_transfers(const Placement& before, const Placement& after, const ExpertMemory& memory, int rank,
                                 const Range& part);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/range.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// The flat memory of the experts of a layer on all ranks that hold parts of them. A rank's unit consists of the slots
/// of its experts, in the order of Placement::order. The ranks form a group, in which rank c · (number of expert ranks)
/// + r holds copy c of the experts of expert rank r.
struct ExpertMemory {
  std::span<const std::int64_t> elements;  // [experts]: size of each expert's slot, including padding
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

/// Returns the offset of each slot in the unit of expert rank `rank`, followed by the size of the unit, in elements:
/// [slots + 1].
std::vector<std::int64_t> slot_offsets(const Placement& placement, int rank, std::span<const std::int64_t> elements);

/// Returns the transfers of rank `rank` of the group that change the placement of the layer from `before` to `after`.
/// For each expert that gets another owner, each copy of the new owner receives its elements once: if copies are
/// sharded, from the ranks that hold them; else from the copy of the old owner with the same number. `part`: the
/// elements of each expert to send, counted from the beginning of its slot. An expert that keeps its owner must keep
/// its slot, and the slots of both placements must have the same sizes. Local; all ranks of the group compute matching
/// transfers.
ExpertTransfers expert_transfers(const Placement& before, const Placement& after, const ExpertMemory& memory, int rank,
                                 const Range& part);

}  // namespace lyceum

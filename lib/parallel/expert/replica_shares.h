#pragma once

#include <cstdint>
#include <vector>

#include "parallel/expert/replica_plan.h"

namespace lyceum {

/// Rows of an expert that a source sends to the same rank.
struct ReplicaShare {
  std::int32_t expert;
  std::int32_t slot;   // index in ReplicaPlan::experts of the replica; −1: the expert's owner
  std::int64_t first;  // the share begins with this row of those that the source has for the expert, in token order
  std::int64_t count;
  bool operator==(const ReplicaShare&) const = default;
};

/// Returns how the rows of one source are divided: shares of the experts that have replicas, by expert, the owner's
/// first, then by slot. Empty shares are left out. Over all sources, the rows of a replica add up to
/// ReplicaPlan::rows. Rows stay on the rank of their source if possible, else on its host.
std::vector<ReplicaShare> shares_of_source(const ReplicaProblem& problem, const ReplicaPlan& plan, std::int64_t source);

}  // namespace lyceum

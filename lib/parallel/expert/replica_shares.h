#pragma once

#include <cstdint>
#include <vector>

#include "parallel/expert/replica_plan.h"

namespace lyceum {

/// Consecutive rows of an expert that a source sends to one rank: to the owner or to a replica.
struct ReplicaShare {
  std::int32_t expert;
  std::int32_t slot;   // index in ReplicaPlan::experts of the replica; −1: the expert's owner
  std::int64_t first;  // index of its first row among the source's rows for the expert, in token order
  std::int64_t count;
  bool operator==(const ReplicaShare&) const = default;
};

/// Returns how the rows of one source are divided: shares of the experts that have replicas, by expert, the owner's
/// first, then by slot. Empty shares are left out. Over all sources, the rows of a replica add up to
/// ReplicaPlan::rows. Rows stay on the rank of their source if possible, else on its host.
std::vector<ReplicaShare> shares_of_source(const ReplicaProblem& problem, const ReplicaPlan& plan, std::int64_t source);

}  // namespace lyceum

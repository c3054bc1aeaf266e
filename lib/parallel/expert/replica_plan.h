#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/expert/placement.h"

namespace lyceum {

/// The rows of one micro-batch in one layer, whose experts may get replicas. Every rank of an expert group has some
/// *spare slots*, each of which can hold a replica of an expert that another rank owns. The owner and the replicas of
/// an expert divide its rows among them.
struct ReplicaProblem {
  const Placement& placement;
  /// [sources, experts]: the rows of each expert that come from each source. The sources are the ranks that send tokens
  /// to the experts, sorted by expert rank. Each expert rank counts as equally many sources, one per rank of its
  /// expert_tensor group.
  std::span<const std::int32_t> rows;
  std::span<const std::int64_t> costs;  // [experts]: FLOPs per row in any unit, for example the expert's width; > 0
  int slots;                            // spare slots per rank
  /// [ranks · slots]: the expert whose weights are in each spare slot at present, −1 for none; empty: none anywhere.
  std::span<const std::int32_t> held = {};
  int ranks_per_host = 0;  // consecutive expert ranks on one host; 0: all
  int most_lent = 0;       // maximum number of replicas of the experts of one rank; 0: no limit
  /// rows_of_experts(sources()), if the caller has it already: with many sources, a pass over `rows` takes long.
  std::span<const std::int64_t> totals = {};

  int ranks() const { return placement.ranks(); }
  std::int64_t sources() const { return static_cast<std::int64_t>(rows.size()) / placement.experts(); }
  /// Returns the rows of each expert, summed over the sources [0, end): [experts].
  std::vector<std::int64_t> rows_of_experts(std::int64_t end) const;
  /// Returns `totals`, or computes them if they are not set.
  std::vector<std::int64_t> rows_of_all() const {
    return totals.empty() ? rows_of_experts(sources()) : std::vector<std::int64_t>(totals.begin(), totals.end());
  }
};

/// Returns ReplicaProblem::rows, [sources, experts], if only `totals` is known: the rows of each expert, summed over
/// the sources. Rows are assigned to the sources round-robin, so any two sources differ by at most 1 row per expert,
/// and by at most 1 in total.
std::vector<std::int32_t> dealt_rows(std::span<const std::int64_t> totals, std::int64_t sources);

/// The replicas that are used for a micro-batch.
struct ReplicaPlan {
  std::vector<std::int32_t> experts;  // [ranks · slots]: the expert of each spare slot; −1: not used
  std::vector<std::int64_t> rows;     // [ranks · slots]: number of rows that the replica takes from the owner

  /// Returns the number of replicas.
  std::int64_t replicas() const;
  bool operator==(const ReplicaPlan&) const = default;
};

/// Chooses replicas and divides rows so that the busiest rank has as little to compute as possible. A pure function in
/// integer arithmetic, so all ranks with the same arguments agree.
///
/// 1. A target is a maximum of the FLOPs of a rank: the mean of all ranks plus a multiple of 1/64 of it. The lowest
///    target that can be met is found by bisection. To meet a target, each rank above it, the busiest first, gives rows
///    of its hottest experts away, each to the rank that has just enough room, or else to the one with most room.
/// 2. Replicas that are held already need no transfer of weights. If they alone meet this target plus 1/32 of the mean,
///    only they are used; if they meet it together with new ones, they are used first; else they are not used.
/// 3. If no target below the present maximum can be met, there are no replicas.
ReplicaPlan plan_replicas(const ReplicaProblem& problem);

/// Returns the FLOPs of each rank in the unit of ReplicaProblem::costs: [ranks].
std::vector<std::int64_t> rank_loads(const ReplicaProblem& problem, const ReplicaPlan& plan);

/// Returns the FLOPs that replicas add to each rank in the unit of ReplicaProblem::costs, negative for owners: [ranks].
std::vector<std::int64_t> moved_loads(const Placement& placement, std::span<const std::int64_t> costs,
                                      const ReplicaPlan& plan);

/// Returns ReplicaProblem::held after `plan` has been carried out. A slot that the plan does not use keeps its replica.
std::vector<std::int32_t> held_after(const ReplicaProblem& problem, const ReplicaPlan& plan);

}  // namespace lyceum

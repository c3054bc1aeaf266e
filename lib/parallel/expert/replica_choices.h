#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/comm/process_group.h"
#include "parallel/expert/expert_route.h"
#include "parallel/expert/replica_shares.h"

namespace lyceum {

/// The choices of this rank's tokens, numbered for each expert in the order of tokens.
struct NumberedChoices {
  Tensor index;           // i32 [tokens, k]: chosen experts, or −1 for none
  Tensor position;        // i64 [tokens · k], see SortByExpert::pair_slot
  Tensor first_position;  // i64 [experts + 1], see SortByExpert::begin

  /// Returns the number of choices of each expert. Waits for the device.
  std::vector<std::int32_t> rows(const Stream& stream) const;
};

/// Numbers the choices of the first `experts` of `choices` choices.
NumberedChoices numbered(const Stream& stream, const Tensor& index, std::int64_t experts, std::int64_t choices);

/// Collective over both groups. Returns the rows of each expert on all sources, see ReplicaProblem::rows: those of the
/// ranks of `experts`, each with the ranks of its `expert_tensor` group. `own` [experts]: this rank's.
std::vector<std::int32_t> rows_of_sources(const ProcessGroup& experts, const ProcessGroup& expert_tensor,
                                          std::span<const std::int32_t> own);

/// Returns what rows_of_sources() means in a rehearsal, in which a source is the same as this rank: the rows of tokens
/// that choose all `choices` choices equally often. `pairs`: number of choices of the tokens of one source.
std::vector<std::int32_t> rehearsed_rows(std::int64_t pairs, std::int64_t choices, std::int64_t experts,
                                         std::int64_t sources);

/// Returns the choices with those that replicas take replaced by `choices` + the index of the replica's slot, see
/// ReplicaShare::slot: i32 [tokens, k]. `shares`: those of this rank. `choices`: number of choices of the router.
Tensor divided(const Stream& stream, const NumberedChoices& choices, std::span<const ReplicaShare> shares,
               std::int64_t count);

/// Returns `route` of a router's choices, extended by the replicas in the spare slots of all ranks, as divided()
/// numbers them. The route must have hops. `groups`: those of route_of().
ExpertRoute with_spare_slots(ExpertRoute route, std::span<const ProcessGroup* const> groups, int slots);

/// Returns the number of rows of each expert of a rank, followed by those of its spare slots. `rank`: in the placement.
std::vector<std::int64_t> rows_on_rank(const ReplicaProblem& problem, const ReplicaPlan& plan, int rank);

/// Returns a route with spare slots in which a rehearsal expects the rows and choices behind each rank that a plan
/// gives them. The rows are an upper bound: a token that a replica takes is counted as one more row for the replica's
/// rank, even if it is sent there anyway, and one less for the owner's rank only if that follows from the number of
/// choices there. `tokens`: number of tokens of all sources.
ExpertRoute with_planned_rows(ExpertRoute route, const ReplicaPlan& plan, std::int64_t tokens);

}  // namespace lyceum

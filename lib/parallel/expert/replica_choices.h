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

/// Numbers the choices of each expert in the order of tokens. `index`: i32 [tokens, k], in [0, choices) or −1. Choices
/// from `experts` on (experts without weights) are not numbered.
NumberedChoices numbered(const Stream& stream, const Tensor& index, std::int64_t experts, std::int64_t choices);

/// Collective over both groups. Returns ReplicaProblem::rows, the rows of each expert from each source. The sources are
/// the ranks of the `expert_tensor` group of each rank of `experts`, in this order. `own` [experts]: the rows from this
/// rank.
std::vector<std::int32_t> rows_of_sources(const ProcessGroup& experts, const ProcessGroup& expert_tensor,
                                          std::span<const std::int32_t> own);

/// Returns ReplicaProblem::rows for a rehearsal, which has no other ranks to ask: the rows if tokens choose all
/// `choices` choices equally often. `pairs`: number of choices that the tokens of one source make.
std::vector<std::int32_t> rehearsed_rows(std::int64_t pairs, std::int64_t choices, std::int64_t experts,
                                         std::int64_t sources);

/// Returns the chosen experts, i32 [tokens, k], in which each choice that a replica takes is replaced by `choices` +
/// ReplicaShare::slot. `shares`: shares_of_source() of this rank. `choices`: number of choices of the router.
Tensor divided(const Stream& stream, const NumberedChoices& chosen, std::span<const ReplicaShare> shares,
               std::int64_t choices);

/// Returns `route`, extended by one choice for each spare slot of all ranks: after the router's choices, in the order
/// of ReplicaPlan::experts, as divided() numbers them. The route must have hops. `groups`: the groups that were passed
/// to route_of().
ExpertRoute with_spare_slots(ExpertRoute route, std::span<const ProcessGroup* const> groups, int slots);

/// Returns the number of rows of each expert of a rank, followed by those of its spare slots. `rank`: its index in the
/// placement.
std::vector<std::int64_t> rows_on_rank(const ReplicaProblem& problem, const ReplicaPlan& plan, int rank);

/// For a rehearsal. Returns a route with spare slots in which Hop::rows and Hop::pairs are the expected values with a
/// plan. Hop::rows is an upper bound: every choice that a replica takes counts as one more row for the replica's rank,
/// even if the token is sent there anyway, and the rows of the owner's rank decrease only where they would exceed the
/// number of choices behind it. `tokens`: number of tokens of all sources.
ExpertRoute with_planned_rows(ExpertRoute route, const ReplicaPlan& plan, std::int64_t tokens);

}  // namespace lyceum

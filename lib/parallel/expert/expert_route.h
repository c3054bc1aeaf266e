#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/comm/process_group.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// One step of tokens towards the ranks of their experts: an exchange within a group. An expert is *behind* a rank of
/// the group if it is on that rank or reached through it by later hops.
struct Hop {
  const ProcessGroup* group;
  std::vector<std::int32_t> rank_of;  // [choices]: the rank of the group that an expert is behind; -1: none
  /// [ranks], expected values for a token on this rank if all experts are chosen equally often: `rows`, the probability
  /// that the token is sent to a rank; `pairs`, the number of its choices behind that rank.
  std::vector<double> rows, pairs;
};

/// The hops of a token from its rank to the ranks of its experts.
struct ExpertRoute {
  std::vector<Hop> hops;  // empty: all experts are on this rank
  /// [choices]: index of an expert among this rank's experts; -1: on another rank
  std::vector<std::int32_t> local_of;
  std::int64_t local = 0;  // number of experts on this rank, with spare slots
};

/// The numbers that define a router's choice: a token chooses k of `choices`. The first of these are the experts of a
/// placement; the others (zero and copy experts) have no rows. If `limit` > 0, all choices of a token are in at most
/// `limit` of the groups of `groups`, which have equal sizes.
struct ChoiceNumbers {
  std::int64_t k, choices;
  std::int64_t limit = 0;
  const Placement* groups = nullptr;  // a partition of all choices; required if limit > 0
};

/// Returns the fraction of tokens that choose at least one of h given experts, if all sets of choices are equally
/// likely: 1 − C(choices − h, k) / C(choices, k). With a limit, the mean of this over all sets of `limit` groups,
/// counting the choices and the given experts in these groups.
double share_of_tokens(std::span<const std::int32_t> experts, const ChoiceNumbers& numbers);

/// Returns the route through `groups`, in order, e.g. {hosts, ranks of a host}. A rank's index in the placement is its
/// rank in the first group, then in the next one (row-major). Groups of one rank are skipped.
ExpertRoute route_of(const Placement& placement, std::span<const ProcessGroup* const> groups,
                     const ChoiceNumbers& numbers);

}  // namespace lyceum

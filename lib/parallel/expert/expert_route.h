#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/comm/process_group.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// A step of tokens towards the ranks of their experts, between the ranks of a group.
struct Hop {
  const ProcessGroup* group;
  std::vector<std::int32_t> rank_of;  // [choices]: the rank that an expert lies behind; −1: none of the group
  /// [ranks], for a token that gets here, on average where all experts are chosen equally often: whether it is sent on
  /// to a rank, and how many of its choices lie behind that.
  std::vector<double> rows, pairs;
};

/// The way of a token to its experts.
struct ExpertRoute {
  std::vector<Hop> hops;               // none: all experts are here
  std::vector<std::int32_t> local_of;  // [choices]: an expert's place among this rank's; −1: elsewhere
  std::int64_t local = 0;              // experts of this rank
};

/// What tokens choose: k of `choices`, of which the first are a placement's experts and the others have no rows. With
/// `limit` those of a token lie in so many of `groups`, which are of one size.
struct ChoiceNumbers {
  std::int64_t k, choices;
  std::int64_t limit = 0;
  const Placement* groups = nullptr;  // of all choices
};

/// The share of tokens that choose at least one of h experts, where all sets of choices are equally likely:
/// 1 − C(choices − h, k) / C(choices, k); with a limit its mean over all sets of groups, of whose choices and experts.
double share_of_tokens(std::span<const std::int32_t> experts, const ChoiceNumbers& numbers);

/// Through `groups`, one after the other. The rank of a placement is its rank in the first of them, then in the next:
/// {hosts, ranks of a host}. Groups of one are no step.
ExpertRoute route_of(const Placement& placement, std::span<const ProcessGroup* const> groups,
                     const ChoiceNumbers& numbers);

}  // namespace lyceum

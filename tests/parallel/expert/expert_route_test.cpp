#include "parallel/expert/expert_route.h"

#include <gtest/gtest.h>

#include <bit>

#include "core/error.h"
#include "parallel/expert/replica_choices.h"

namespace lyceum {
namespace {

/// Averages over all sets of k choices, by enumeration: the fraction of tokens with at least one choice on ranks
/// [first, end) of the placement, and the number of such choices per token. With a limit, also over all sets of groups.
struct Averages {
  double tokens = 0, pairs = 0;
};
Averages over_all_sets(const Placement& placement, const ChoiceNumbers& numbers, int first, int end) {
  Averages sum;
  double sets = 0;
  const unsigned groups = numbers.limit ? static_cast<unsigned>(numbers.groups->ranks()) : 0;
  for (unsigned open = 0; open < 1u << groups; ++open) {
    if (std::popcount(open) != numbers.limit) continue;
    for (unsigned set = 0; set < 1u << numbers.choices; ++set) {
      bool possible = std::popcount(set) == numbers.k;
      for (std::size_t e = 0; possible && numbers.limit && e < numbers.groups->owner.size(); ++e) {
        possible = !(set >> e & 1) || (open >> numbers.groups->owner[e] & 1);
      }
      if (!possible) continue;
      ++sets;
      int behind = 0;
      for (std::size_t e = 0; e < placement.owner.size(); ++e) {
        behind += (set >> e & 1) && placement.owner[e] >= first && placement.owner[e] < end;
      }
      sum.tokens += behind > 0;
      sum.pairs += behind;
    }
  }
  return {sum.tokens / sets, sum.pairs / sets};
}

struct Groups {
  ProcessGroup across, within;
  Groups(int rank, int hosts, int each)
      : across(ProcessGroup::rehearsal(rank, hosts * each).split([=](int r) { return r % each; }, "across")),
        within(ProcessGroup::rehearsal(rank, hosts * each).split([=](int r) { return r / each; }, "within")) {}
  std::vector<const ProcessGroup*> both() const { return {&across, &within}; }
};

TEST(ExpertRoute, ExpectsWhatEvenChoicesGiveOnAverage) {
  const Placement placement = Placement::of_owners({0, 2, 1, 3, 3, 0, 2, 3, 1}, 4);
  const Placement three = Placement::contiguous(9, 3), four = Placement::contiguous(12, 4);
  for (const ChoiceNumbers& numbers :
       {ChoiceNumbers{3, 9}, ChoiceNumbers{1, 9}, ChoiceNumbers{9, 9}, ChoiceNumbers{4, 11}, ChoiceNumbers{8, 11},
        ChoiceNumbers{3, 9, 1, &three}, ChoiceNumbers{4, 9, 2, &three}, ChoiceNumbers{5, 12, 2, &four},
        ChoiceNumbers{5, 12, 4, &four}}) {
    for (int rank = 0; rank < 4; ++rank) {
      const Groups groups(rank, 2, 2);
      const ExpertRoute route = route_of(placement, groups.both(), numbers);
      ASSERT_EQ(route.hops.size(), 2u);
      for (int host = 0; host < 2; ++host) {
        const Averages there = over_all_sets(placement, numbers, 2 * host, 2 * host + 2);
        EXPECT_NEAR(route.hops[0].rows.at(static_cast<std::size_t>(host)), there.tokens, 1e-12);
        EXPECT_NEAR(route.hops[0].pairs.at(static_cast<std::size_t>(host)), there.pairs, 1e-12);
      }
      const int own = rank / 2;
      const double here = over_all_sets(placement, numbers, 2 * own, 2 * own + 2).tokens;
      for (int place = 0; place < 2; ++place) {
        const Averages there = over_all_sets(placement, numbers, 2 * own + place, 2 * own + place + 1);
        EXPECT_NEAR(route.hops[1].rows.at(static_cast<std::size_t>(place)), there.tokens / here, 1e-12);
        EXPECT_NEAR(route.hops[1].pairs.at(static_cast<std::size_t>(place)), there.pairs / here, 1e-12);
      }
    }
  }
}

TEST(ExpertRoute, LeadsByTheHostToTheRank) {
  const Placement placement = Placement::of_owners({0, 2, 1, 3, 3, 0}, 4);
  const Groups groups(2, 2, 2);
  const ExpertRoute route = route_of(placement, groups.both(), {.k = 2, .choices = 7});
  using Map = std::vector<std::int32_t>;
  EXPECT_EQ(route.hops.at(0).rank_of, (Map{0, 1, 0, 1, 1, 0, -1}));
  EXPECT_EQ(route.hops.at(1).rank_of, (Map{-1, 0, -1, 1, 1, -1, -1}));
  EXPECT_EQ(route.local_of, (Map{-1, 0, -1, -1, -1, -1, -1}));
  EXPECT_EQ(route.local, 1);
}

/// Tokens with one choice each: 1,200 of 12 experts, three of each of four ranks. Experts 0, 1 and 4 give rows away.
TEST(ExpertRoute, ExpectsTheRowsThatReplicasTake) {
  constexpr int tokens = 1200, each = tokens / 12;
  const ReplicaPlan plan{.experts = {-1, 4, 0, 1, -1, 0, 1, -1}, .rows = {0, 40, 60, 100, 0, 20, 0, 0}};
  const std::vector<double> rows_of_ranks{3 * each - 180 + 40, 3 * each - 40 + 160, 3 * each + 20, 3 * each};
  for (int rank = 0; rank < 4; ++rank) {
    const Groups groups(rank, 2, 2);
    const ExpertRoute without = route_of(Placement::contiguous(12, 4), groups.both(), {.k = 1, .choices = 12});
    const ExpertRoute route = with_planned_rows(with_spare_slots(without, groups.both(), 2), plan, tokens);
    const double host = rows_of_ranks[0] + rows_of_ranks[1];
    const std::vector<double> of_hosts{host / tokens, 1 - host / tokens};
    for (std::size_t to = 0; to < 2; ++to) {
      const std::size_t own = static_cast<std::size_t>(rank) / 2;
      const double of_rank = rows_of_ranks[2 * own + to] / tokens / of_hosts[own];
      EXPECT_NEAR(route.hops[0].rows.at(to), of_hosts[to], 1e-12);
      EXPECT_NEAR(route.hops[0].pairs.at(to), of_hosts[to], 1e-12);
      EXPECT_NEAR(route.hops[1].rows.at(to), of_rank, 1e-12) << rank;
      EXPECT_NEAR(route.hops[1].pairs.at(to), of_rank, 1e-12) << rank;
    }
  }
}

/// The rows behind a rank are at most all tokens, and at least as many as its choices need.
TEST(ExpertRoute, BoundsTheRowsOfReplicasOfSeveralChoices) {
  const ReplicaPlan plan{.experts = {-1, 4, 0, 1, -1, 0, 1, -1}, .rows = {0, 90, 60, 100, 0, 20, 0, 0}};
  for (int rank = 0; rank < 4; ++rank) {
    const Groups groups(rank, 2, 2);
    const ExpertRoute without = route_of(Placement::contiguous(12, 4), groups.both(), {.k = 3, .choices = 12});
    const ExpertRoute route = with_planned_rows(with_spare_slots(without, groups.both(), 2), plan, 400);
    for (const Hop& hop : route.hops) {
      for (std::size_t to = 0; to < 2; ++to) {
        EXPECT_LE(hop.rows.at(to), 1);
        EXPECT_GE(3 * hop.rows.at(to), hop.pairs.at(to) - 1e-12);
      }
    }
  }
}

TEST(ExpertRoute, RefusesGroupsOfOtherSizes) {
  const Groups groups(0, 2, 2);
  EXPECT_THROW(route_of(Placement::contiguous(8, 8), groups.both(), {.k = 2, .choices = 8}), Error);
  EXPECT_THROW(route_of(Placement::contiguous(3, 3), groups.both(), {.k = 2, .choices = 3}), Error);
}

}  // namespace
}  // namespace lyceum

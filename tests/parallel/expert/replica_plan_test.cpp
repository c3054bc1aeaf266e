#include "parallel/expert/replica_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "parallel/expert/replica_choices.h"
#include "parallel/expert/replica_shares.h"

namespace lyceum {
namespace {

/// A problem that owns its memory.
struct OwnedProblem {
  Placement placement;
  std::vector<std::int32_t> rows;
  std::vector<std::int64_t> costs;
  int slots = 1;
  std::vector<std::int32_t> held = {};
  int ranks_per_host = 0, most_lent = 0;

  ReplicaProblem view() const {
    return {.placement = placement,
            .rows = rows,
            .costs = costs,
            .slots = slots,
            .held = held,
            .ranks_per_host = ranks_per_host,
            .most_lent = most_lent};
  }
};

/// Returns a problem with exp(skew · normal) · 100 rows per expert and source. All sources favour the same experts.
OwnedProblem skewed_problem(std::uint64_t seed, int ranks, std::int64_t experts, double skew, bool uneven = false,
                            int sources_per_rank = 1) {
  const Philox random(seed, "replicas");
  OwnedProblem problem{.placement = Placement::contiguous(experts, ranks), .rows = {}, .costs = {}};
  for (std::int64_t s = 0; s < ranks * sources_per_rank; ++s) {
    for (std::int64_t e = 0; e < experts; ++e) {
      const double noise = random.normal(static_cast<std::uint64_t>((s + 1) * experts + e)) / 5;
      const double rows = 100 * std::exp(skew * random.normal(static_cast<std::uint64_t>(e)) + noise);
      problem.rows.push_back(static_cast<std::int32_t>(rows));
    }
  }
  for (std::int64_t e = 0; e < experts; ++e) problem.costs.push_back(uneven ? 16 + 16 * (e % 3) : 64);
  return problem;
}

std::vector<std::int64_t> totals(const OwnedProblem& problem) {
  std::vector<std::int64_t> sums(problem.costs.size());
  for (std::size_t i = 0; i < problem.rows.size(); ++i) sums[i % sums.size()] += problem.rows[i];
  return sums;
}

double mean_load(const OwnedProblem& problem) {
  const std::vector<std::int64_t> rows = totals(problem);
  return static_cast<double>(std::inner_product(rows.begin(), rows.end(), problem.costs.begin(), std::int64_t{0})) /
         problem.placement.ranks();
}

std::int64_t busiest(const OwnedProblem& problem, const ReplicaPlan& plan) {
  return std::ranges::max(rank_loads(problem.view(), plan));
}

ReplicaPlan without_replicas(const OwnedProblem& problem) {
  const auto slots = static_cast<std::size_t>(problem.placement.ranks() * problem.slots);
  return {std::vector<std::int32_t>(slots, -1), std::vector<std::int64_t>(slots)};
}

/// Returns the lowest maximum with rows that can be divided arbitrarily, over all contents of the spare slots. For
/// given contents it is the largest mean of a set of ranks whose experts have no replica outside the set.
double optimum_of(const OwnedProblem& problem) {
  const int ranks = problem.placement.ranks(), experts = static_cast<int>(problem.costs.size());
  const std::vector<std::int64_t> rows = totals(problem);
  std::vector<int> content(static_cast<std::size_t>(ranks * problem.slots), -1);
  double best = std::numeric_limits<double>::infinity();
  for (;;) {
    std::vector<unsigned> places(problem.costs.size());
    for (std::size_t e = 0; e < places.size(); ++e) places[e] = 1U << problem.placement.owner[e];
    for (std::size_t s = 0; s < content.size(); ++s) {
      if (content[s] >= 0)
        places[static_cast<std::size_t>(content[s])] |= 1U << (s / static_cast<std::size_t>(problem.slots));
    }
    double worst = 0;
    for (unsigned set = 1; set < 1U << ranks; ++set) {
      double load = 0;
      for (std::size_t e = 0; e < places.size(); ++e) {
        if ((places[e] & ~set) == 0) load += static_cast<double>(rows[e] * problem.costs[e]);
      }
      worst = std::max(worst, load / std::popcount(set));
    }
    best = std::min(best, worst);
    std::size_t next = 0;
    while (next < content.size() && ++content[next] == experts) content[next++] = -1;
    if (next == content.size()) return best;
  }
}

/// Expects a plan that can be carried out, and shares of all sources that add up to it.
void expect_valid(const OwnedProblem& problem, const ReplicaPlan& plan) {
  const ReplicaProblem view = problem.view();
  const auto slots = static_cast<std::size_t>(problem.slots);
  ASSERT_EQ(plan.experts.size(), static_cast<std::size_t>(problem.placement.ranks()) * slots);
  std::vector<std::int64_t> kept = totals(problem);
  std::vector<std::vector<std::int64_t>> pairs(kept.size());  // ranks of the replicas of each expert
  for (std::size_t s = 0; s < plan.experts.size(); ++s) {
    if (plan.experts[s] < 0) {
      EXPECT_EQ(plan.rows[s], 0);
      continue;
    }
    const auto expert = static_cast<std::size_t>(plan.experts[s]);
    EXPECT_GT(plan.rows[s], 0) << "a replica without rows";
    EXPECT_NE(problem.placement.owner[expert], static_cast<int>(s / slots)) << "a replica beside its original";
    kept[expert] -= plan.rows[s];
    pairs[expert].push_back(static_cast<std::int64_t>(s / slots));
  }
  for (std::size_t e = 0; e < kept.size(); ++e) {
    EXPECT_GE(kept[e], 0);
    std::ranges::sort(pairs[e]);
    EXPECT_EQ(std::ranges::adjacent_find(pairs[e]), pairs[e].end()) << "two replicas of an expert on one rank";
  }
  std::vector<std::int64_t> taken(plan.rows.size());
  for (std::int64_t source = 0; source < view.sources(); ++source) {
    const auto of_source = view.rows.subspan(static_cast<std::size_t>(source) * kept.size(), kept.size());
    std::vector<std::int64_t> shared(kept.size());
    for (const ReplicaShare& share : shares_of_source(view, plan, source)) {
      const auto expert = static_cast<std::size_t>(share.expert);
      EXPECT_GT(share.count, 0);
      EXPECT_EQ(share.first, shared[expert]) << "shares of an expert follow each other";
      shared[expert] += share.count;
      if (share.slot < 0) continue;
      EXPECT_EQ(plan.experts[static_cast<std::size_t>(share.slot)], share.expert);
      taken[static_cast<std::size_t>(share.slot)] += share.count;
    }
    for (std::size_t e = 0; e < kept.size(); ++e) {
      EXPECT_EQ(shared[e], pairs[e].empty() ? 0 : of_source[e]) << "expert " << e << " of source " << source;
    }
  }
  EXPECT_EQ(taken, plan.rows);
}

TEST(ReplicaPlan, DividesAHotExpert) {
  // Expert 0 on rank 0 has 90 rows of 120 on 4 ranks.
  const OwnedProblem problem{.placement = Placement::contiguous(4, 4),
                             .rows = {20, 3, 2, 2, 20, 2, 3, 2, 25, 2, 2, 4, 25, 3, 3, 2},
                             .costs = {7, 7, 7, 7}};
  const ReplicaPlan plan = plan_replicas(problem.view());
  EXPECT_EQ(plan.experts, (std::vector<std::int32_t>{-1, 0, 0, 0}));
  EXPECT_EQ(busiest(problem, plan), 30 * 7);
  expect_valid(problem, plan);
}

TEST(ReplicaPlan, KeepsRowsOnTheirRankAndHost) {
  // 4 ranks on 2 hosts. Expert 0 gives rows to ranks 1, 2 and 3.
  const OwnedProblem problem{.placement = Placement::contiguous(4, 4),
                             .rows = {10, 0, 0, 0, 10, 0, 0, 0, 10, 0, 0, 0, 10, 0, 0, 0},
                             .costs = {1, 1, 1, 1},
                             .ranks_per_host = 2};
  const ReplicaPlan plan = plan_replicas(problem.view());
  for (std::int64_t source = 0; source < 4; ++source) {
    EXPECT_EQ(shares_of_source(problem.view(), plan, source),
              (std::vector<ReplicaShare>{{0, source == 0 ? -1 : static_cast<std::int32_t>(source), 0, 10}}));
  }
  // If only ranks 2 and 3 have rows, rank 3 takes rows of rank 2 for which rank 2 has no room.
  OwnedProblem uneven = problem;
  uneven.rows = {0, 0, 0, 0, 0, 0, 0, 0, 30, 0, 0, 0, 10, 0, 0, 0};
  const ReplicaPlan other{.experts = {-1, 0, 0, 0}, .rows = {0, 5, 15, 15}};
  expect_valid(uneven, other);
  EXPECT_EQ(shares_of_source(uneven.view(), other, 3), (std::vector<ReplicaShare>{{0, 3, 0, 10}}));
  EXPECT_EQ(shares_of_source(uneven.view(), other, 2),
            (std::vector<ReplicaShare>{{0, -1, 0, 5}, {0, 1, 5, 5}, {0, 2, 10, 15}, {0, 3, 25, 5}}));
}

TEST(ReplicaPlan, HasNoReplicasIfNoneHelps) {
  OwnedProblem even{.placement = Placement::contiguous(4, 2), .rows = {5, 5, 5, 5, 5, 5, 5, 5}, .costs = {1, 1, 1, 1}};
  EXPECT_EQ(plan_replicas(even.view()), without_replicas(even));
  even.rows.assign(8, 0);
  EXPECT_EQ(plan_replicas(even.view()), without_replicas(even)) << "no tokens at all";
  even.rows = {10, 10, 10, 10, 10, 10, 10, 10 + 1};
  EXPECT_EQ(plan_replicas(even.view()), without_replicas(even)) << "less than 1/64 of the mean";
  OwnedProblem single{.placement = Placement::contiguous(3, 1), .rows = {5, 0, 9}, .costs = {1, 2, 3}};
  EXPECT_EQ(plan_replicas(single.view()), without_replicas(single));
}

TEST(ReplicaPlan, IsNearTheOptimumOfSmallProblems) {
  double worst = 1, sum = 0;
  constexpr int problems = 90;
  for (std::uint64_t seed = 0; seed < problems; ++seed) {
    const int ranks = seed % 2 ? 3 : 4;
    OwnedProblem problem = skewed_problem(seed, ranks, seed % 3 ? 6 : 8, seed % 5 ? 1.0 : 2.0, seed % 4 == 0);
    problem.slots = ranks == 3 && seed % 3 ? 2 : 1;
    const ReplicaPlan plan = plan_replicas(problem.view());
    expect_valid(problem, plan);
    const double ratio = static_cast<double>(busiest(problem, plan)) / optimum_of(problem);
    EXPECT_GE(ratio, 1 - 1e-12);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LE(worst, 1.25);
  EXPECT_LE(sum / problems, 1.05);
}

TEST(ReplicaPlan, BalancesLargeGroups) {
  for (const auto& [ranks, experts] : {std::pair(8, 64), std::pair(64, 256), std::pair(64, 255)}) {
    for (const bool uneven : {false, true}) {
      OwnedProblem problem = skewed_problem(3, ranks, experts, ranks > 8 ? 1.0 : 1.3, uneven);
      problem.slots = 2;
      const ReplicaPlan plan = plan_replicas(problem.view());
      expect_valid(problem, plan);
      EXPECT_GT(static_cast<double>(busiest(problem, without_replicas(problem))), 1.5 * mean_load(problem));
      EXPECT_LE(static_cast<double>(busiest(problem, plan)), 1.06 * mean_load(problem));
    }
  }
}

TEST(ReplicaPlan, CountsSeveralSourcesPerRank) {
  OwnedProblem problem = skewed_problem(4, 6, 24, 1.0, true, 2);
  problem.ranks_per_host = 3;
  problem.slots = 2;
  const ReplicaPlan plan = plan_replicas(problem.view());
  EXPECT_GT(plan.replicas(), 0);
  expect_valid(problem, plan);
  // Sources of one rank together are like one source.
  OwnedProblem merged = problem;
  merged.rows.clear();
  for (std::size_t s = 0; s < 12; s += 2) {
    for (std::size_t e = 0; e < 24; ++e)
      merged.rows.push_back(problem.rows[s * 24 + e] + problem.rows[(s + 1) * 24 + e]);
  }
  EXPECT_EQ(plan_replicas(merged.view()), plan);
}

TEST(ReplicaPlan, KeepsHeldReplicasWhileTheyAreGoodEnough) {
  OwnedProblem problem = skewed_problem(11, 16, 64, 1.0);
  problem.slots = 2;
  const ReplicaPlan first = plan_replicas(problem.view());
  ASSERT_GT(first.replicas(), 4);
  problem.held = held_after(problem.view(), first);
  // An equal load needs no other replicas than those that are held.
  const ReplicaPlan again = plan_replicas(problem.view());
  expect_valid(problem, again);
  EXPECT_EQ(again, first);
  EXPECT_LE(static_cast<double>(busiest(problem, again)),
            static_cast<double>(busiest(problem, first)) + 3.0 / 64 * mean_load(problem));
  // A similar load: few new ones.
  OwnedProblem similar = problem;
  const Philox random(5, "noise");
  for (std::size_t i = 0; i < similar.rows.size(); ++i) {
    similar.rows[i] += static_cast<std::int32_t>(random.below(20, i)) - 10;
    similar.rows[i] = std::max(similar.rows[i], 0);
  }
  const ReplicaPlan next = plan_replicas(similar.view());
  expect_valid(similar, next);
  OwnedProblem fresh = similar;
  fresh.held.clear();
  EXPECT_LE(static_cast<double>(busiest(similar, next)),
            static_cast<double>(busiest(similar, plan_replicas(fresh.view()))) + 3.0 / 64 * mean_load(similar));
  const std::vector<std::int32_t> after = held_after(similar.view(), next);
  std::int64_t sent = 0;
  for (std::size_t s = 0; s < after.size(); ++s) sent += after[s] != similar.held[s] ? 1 : 0;
  EXPECT_LE(sent, first.replicas() / 2);
  // Another load: what is held does not help and is given up.
  OwnedProblem reversed = problem;
  std::ranges::reverse(reversed.rows);
  const ReplicaPlan other = plan_replicas(reversed.view());
  expect_valid(reversed, other);
  EXPECT_LE(static_cast<double>(busiest(reversed, other)), 1.06 * mean_load(reversed));
}

TEST(ReplicaPlan, DealsRowsToSourcesEvenly) {
  for (const std::int64_t sources : {1, 2, 3, 8, 64}) {
    for (const std::vector<std::int64_t>& totals :
         std::vector<std::vector<std::int64_t>>{{0, 0, 0}, {1, 0, 1, 1, 0}, {7, 100, 3, 0, 12}, {64, 128}, {5}}) {
      const std::vector<std::int32_t> rows = dealt_rows(totals, sources);
      const std::size_t experts = totals.size();
      ASSERT_EQ(rows.size(), experts * static_cast<std::size_t>(sources));
      std::vector<std::int64_t> of_experts(experts), of_sources(static_cast<std::size_t>(sources));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_GE(rows[i], totals[i % experts] / sources);
        EXPECT_LE(rows[i], (totals[i % experts] + sources - 1) / sources);
        of_experts[i % experts] += rows[i];
        of_sources[i / experts] += rows[i];
      }
      EXPECT_EQ(of_experts, totals);
      EXPECT_LE(std::ranges::max(of_sources) - std::ranges::min(of_sources), 1);
    }
  }
}

/// A rehearsal sees one source, so the rounding error of its rows must not be multiplied by the number of sources.
TEST(ReplicaPlan, RehearsesTheRowsOfAllSources) {
  // 10 choices of each of 64 sources among 16: 0.625 for each expert of a source, 40 for all sources.
  const std::vector<std::int32_t> rows = rehearsed_rows(10, 16, 15, 64);
  for (std::size_t e = 0; e < 15; ++e) {
    std::int64_t sum = 0;
    for (std::size_t i = e; i < rows.size(); i += 15) sum += rows[i];
    EXPECT_EQ(sum, 40);
  }
  EXPECT_EQ(rehearsed_rows(32, 8, 8, 2), std::vector<std::int32_t>(16, 4));
}

/// The caller may have summed the rows already.
TEST(ReplicaPlan, TakesTotalsOfRows) {
  OwnedProblem problem = skewed_problem(8, 8, 40, 1.0, true);
  ReplicaProblem given = problem.view();
  const std::vector<std::int64_t> sums = totals(problem);
  given.totals = sums;
  const ReplicaPlan plan = plan_replicas(problem.view());
  EXPECT_GT(plan.replicas(), 0);
  EXPECT_EQ(plan_replicas(given), plan);
  EXPECT_EQ(rank_loads(given, plan), rank_loads(problem.view(), plan));
  EXPECT_EQ(shares_of_source(given, plan, 5), shares_of_source(problem.view(), plan, 5));
  given.totals = std::span(sums).first(7);
  EXPECT_THROW(plan_replicas(given), Error);
}

/// The moved FLOPs are the difference of the loads, and the sum over the shares of all sources.
TEST(ReplicaPlan, MovesTheFlopsOfItsShares) {
  OwnedProblem problem = skewed_problem(9, 8, 24, 1.2, true, 2);
  problem.slots = 2;
  const ReplicaPlan plan = plan_replicas(problem.view());
  std::vector<std::int64_t> expected(8);
  for (std::int64_t source = 0; source < 16; ++source) {
    for (const ReplicaShare& share : shares_of_source(problem.view(), plan, source)) {
      if (share.slot < 0) continue;
      const auto expert = static_cast<std::size_t>(share.expert);
      expected[static_cast<std::size_t>(problem.placement.owner[expert])] -= share.count * problem.costs[expert];
      expected[static_cast<std::size_t>(share.slot / 2)] += share.count * problem.costs[expert];
    }
  }
  EXPECT_EQ(moved_loads(problem.placement, problem.costs, plan), expected);
  const std::vector<std::int64_t> with = rank_loads(problem.view(), plan),
                                  without = rank_loads(problem.view(), without_replicas(problem));
  for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(with[rank] - without[rank], expected[rank]);
}

TEST(ReplicaPlan, LendsNoMoreThanAllowed) {
  for (const int most : {1, 2, 5}) {
    OwnedProblem problem = skewed_problem(6, 16, 32, 1.5);
    problem.slots = 2;
    problem.most_lent = most;
    for (int round = 0; round < 2; ++round) {
      const ReplicaPlan plan = plan_replicas(problem.view());
      expect_valid(problem, plan);
      std::vector<int> lent(16);
      for (const std::int32_t expert : plan.experts) {
        if (expert >= 0) ++lent[static_cast<std::size_t>(problem.placement.owner[static_cast<std::size_t>(expert)])];
      }
      EXPECT_LE(std::ranges::max(lent), most);
      EXPECT_GT(std::ranges::max(lent), 0);
      EXPECT_LT(busiest(problem, plan), busiest(problem, without_replicas(problem)));
      problem.held = held_after(problem.view(), plan);
    }
  }
}

TEST(ReplicaPlan, RejectsWhatDoesNotFit) {
  OwnedProblem problem = skewed_problem(1, 2, 4, 1.0);
  problem.costs[2] = 0;
  EXPECT_THROW(plan_replicas(problem.view()), Error);
  problem.costs = {1, 1, 1};
  EXPECT_THROW(plan_replicas(problem.view()), Error);
  problem.costs = {1, 1, 1, 1};
  problem.slots = 0;
  EXPECT_THROW(plan_replicas(problem.view()), Error);
  problem.slots = 1;
  problem.held = {1};
  EXPECT_THROW(plan_replicas(problem.view()), Error);
  problem.held = {};
  problem.rows.pop_back();
  EXPECT_THROW(plan_replicas(problem.view()), Error);
}

}  // namespace
}  // namespace lyceum

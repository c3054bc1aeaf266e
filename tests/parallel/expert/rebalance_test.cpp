#include "parallel/expert/rebalance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace lyceum {
namespace {

std::vector<double> random_costs(std::uint64_t seed, std::size_t experts) {
  const Philox random(seed, "costs");
  std::vector<double> costs;
  for (std::size_t e = 0; e < experts; ++e) costs.push_back(static_cast<double>(random.below(1000, e)));
  return costs;
}

std::vector<int> one_kind(std::size_t experts) { return std::vector<int>(experts); }

/// Returns the lowest cost of the busiest rank among all placements with the numbers of experts of `present` per rank.
double optimum(const Placement& present, const std::vector<double>& costs) {
  std::vector<int> owner;
  for (int rank = 0; rank < present.ranks(); ++rank) owner.insert(owner.end(), present.experts_of(rank).size(), rank);
  double best = std::numeric_limits<double>::infinity();
  do {
    best = std::min(best, busiest_cost(Placement::of_owners(owner, present.ranks()), costs));
  } while (std::ranges::next_permutation(owner).found);
  return best;
}

/// Expects a whole placement in which every rank has its old numbers of experts of each kind, and every expert that
/// stays is in its old slot.
void expect_same_slots(const Placement& after, const Placement& before, const std::vector<int>& kinds) {
  EXPECT_EQ(after.first, before.first);
  std::vector<std::int32_t> sorted = after.order;
  std::ranges::sort(sorted);
  std::vector<std::int32_t> all(kinds.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  for (int rank = 0; rank < before.ranks(); ++rank) {
    const auto then = before.experts_of(rank), now = after.experts_of(rank);
    for (std::size_t slot = 0; slot < now.size(); ++slot) {
      EXPECT_EQ(kinds[static_cast<std::size_t>(now[slot])], kinds[static_cast<std::size_t>(then[slot])]);
      EXPECT_EQ(after.owner[static_cast<std::size_t>(now[slot])], rank);
      if (after.owner[static_cast<std::size_t>(then[slot])] == rank) {
        EXPECT_EQ(now[slot], then[slot]);
      }
    }
  }
}

TEST(Rebalance, ExchangesTheBusiestExpertForAnIdleOne) {
  const Placement present = Placement::contiguous(4, 2);
  const Placement after = rebalanced(present, std::vector<double>{5, 5, 1, 1}, one_kind(4));
  EXPECT_EQ(busiest_cost(present, std::vector<double>{5, 5, 1, 1}), 10);
  EXPECT_EQ(busiest_cost(after, std::vector<double>{5, 5, 1, 1}), 6);
  EXPECT_EQ(moved_experts(present, after), (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(after.order, (std::vector<std::int32_t>{2, 1, 0, 3}));
  EXPECT_EQ(after.owner, (std::vector<int>{1, 0, 0, 1}));
}

TEST(Rebalance, KeepsAPlacementThatNoExchangeImproves) {
  const Placement present = Placement::contiguous(6, 3);
  for (const std::vector<double>& costs : {std::vector<double>{1, 1, 1, 1, 1, 1}, std::vector<double>{9, 0, 0, 0, 0, 0},
                                           std::vector<double>(6), std::vector<double>{3, 1, 2, 2, 1, 3}}) {
    EXPECT_EQ(rebalanced(present, costs, one_kind(6)), present);
  }
}

TEST(Rebalance, IsNearTheOptimumOfSmallProblems) {
  double worst = 1, sum = 0;
  constexpr int problems = 60;
  for (std::uint64_t seed = 0; seed < problems; ++seed) {
    const int ranks = seed % 2 ? 2 : 3;
    const std::size_t experts = seed % 3 ? 8 : 9;  // ranks may have different numbers of experts
    const std::vector<double> costs = random_costs(seed, experts);
    const Placement present = Placement::contiguous(static_cast<std::int64_t>(experts), ranks);
    const Placement after = rebalanced(present, costs, one_kind(experts));
    expect_same_slots(after, present, one_kind(experts));
    EXPECT_LE(busiest_cost(after, costs), busiest_cost(present, costs));
    const double ratio = busiest_cost(after, costs) / optimum(present, costs);
    EXPECT_GE(ratio, 1 - 1e-12);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LE(worst, 1.25);
  EXPECT_LE(sum / problems, 1.03);
}

TEST(Rebalance, MakesFewExchangesForMostOfTheRelief) {
  // Rank 0 has two hot experts; an exchange of one of them gives nearly all of the relief.
  const std::vector<double> costs{100, 100, 1, 2, 3, 4, 5, 6};
  const Placement present = Placement::contiguous(8, 4);
  const Placement after = rebalanced(present, costs, one_kind(8));
  EXPECT_EQ(moved_experts(present, after).size(), 2U);
  EXPECT_LE(busiest_cost(after, costs), 106);
}

TEST(Rebalance, ExchangesOnlyExpertsOfOneKind) {
  const std::size_t experts = 24;
  const std::vector<double> costs = random_costs(7, experts);
  std::vector<int> kinds;
  for (std::size_t e = 0; e < experts; ++e) kinds.push_back(static_cast<int>(e * e % 3));
  const Placement present = Placement::contiguous(experts, 5);
  const Placement after = rebalanced(present, costs, kinds);
  EXPECT_LT(busiest_cost(after, costs), busiest_cost(present, costs));
  expect_same_slots(after, present, kinds);
  std::vector<int> each(experts);
  std::iota(each.begin(), each.end(), 0);
  EXPECT_EQ(rebalanced(present, costs, each), present) << "each expert has a kind of its own";
}

TEST(Rebalance, SettlesOnLargeClusters) {
  for (const auto& [ranks, experts] : {std::pair(64, 256), std::pair(512, 1024), std::pair(3, 200)}) {
    std::vector<double> costs = random_costs(static_cast<std::uint64_t>(ranks), static_cast<std::size_t>(experts));
    for (double& cost : costs) cost = std::exp(cost / 300);  // a few hot experts
    const std::vector<int> kinds = one_kind(costs.size());
    const Placement present = Placement::contiguous(experts, ranks);
    const Placement after = rebalanced(present, costs, kinds);
    EXPECT_EQ(after, rebalanced(present, costs, kinds));
    expect_same_slots(after, present, kinds);
    const double before = busiest_cost(present, costs), now = busiest_cost(after, costs);
    EXPECT_LT(now, before);
    // A second run finds little more, and what it finds is no worse.
    const double next = busiest_cost(rebalanced(after, costs, kinds), costs);
    EXPECT_LE(next, now);
    EXPECT_GE(next, now - 0.06 * (before - now));
  }
}

TEST(Rebalance, RefusesWhatIsNoCost) {
  const Placement present = Placement::contiguous(4, 2);
  EXPECT_THROW(rebalanced(present, std::vector<double>{1, 2, 3}, one_kind(4)), Error);
  EXPECT_THROW(rebalanced(present, std::vector<double>{1, 2, 3, -1}, one_kind(4)), Error);
  EXPECT_THROW(rebalanced(present, std::vector<double>{1, 2, 3, std::nan("")}, one_kind(4)), Error);
}

}  // namespace
}  // namespace lyceum

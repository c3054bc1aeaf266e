#include "parallel/pipeline/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/error.h"
#include "core/random.h"

namespace lyceum {
namespace {

using Cuts = std::vector<int>;

/// Returns the cost of the most expensive stage and the sum of squares, which are to be minimal in this order.
std::pair<double, double> value(const std::vector<double>& costs, const Cuts& cuts, double first, double last) {
  double most = 0, squares = 0;
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
    double sum = (s == 0 ? first : 0) + (s + 2 == cuts.size() ? last : 0);
    for (int b = cuts[s]; b < cuts[s + 1]; ++b) sum += costs[static_cast<std::size_t>(b)];
    most = std::max(most, sum);
    squares += sum * sum;
  }
  return {most, squares};
}

/// Returns the best value of all partitions, by enumeration.
std::pair<double, double> best_by_trying(const std::vector<double>& costs, int stages, double first, double last) {
  const int blocks = static_cast<int>(costs.size());
  std::pair<double, double> best{std::numeric_limits<double>::infinity(), 0};
  Cuts cuts{0};
  const std::function<void()> extend = [&] {
    if (static_cast<int>(cuts.size()) == stages) {
      cuts.push_back(blocks);
      best = std::min(best, value(costs, cuts, first, last));
      cuts.pop_back();
      return;
    }
    for (int next = cuts.back() + 1; next < blocks; ++next) {
      cuts.push_back(next);
      extend();
      cuts.pop_back();
    }
  };
  extend();
  return best;
}

TEST(BalanceStages, IsTheBestOfAllPartitions) {
  const Philox random(3, "costs");
  std::uint64_t at = 0;
  for (int blocks = 1; blocks <= 9; ++blocks) {
    for (int stages = 1; stages <= blocks; ++stages) {
      for (int repeat = 0; repeat < 4; ++repeat) {
        std::vector<double> costs;  // integers, so that sums are exact
        for (int b = 0; b < blocks; ++b) costs.push_back(std::floor(4 + 3 * std::abs(random.normal(at++))));
        const double first = repeat * 2, last = repeat * repeat;
        const Cuts cuts = balance_stages(costs, stages, first, last);
        ASSERT_EQ(cuts.size(), static_cast<std::size_t>(stages) + 1);
        EXPECT_EQ(cuts.front(), 0);
        EXPECT_EQ(cuts.back(), blocks);
        for (std::size_t s = 0; s + 1 < cuts.size(); ++s) EXPECT_LT(cuts[s], cuts[s + 1]);
        EXPECT_EQ(value(costs, cuts, first, last), best_by_trying(costs, stages, first, last))
            << blocks << " blocks, " << stages << " stages, repeat " << repeat;
      }
    }
  }
}

TEST(BalanceStages, SpreadsEqualBlocks) {
  EXPECT_EQ(balance_stages(std::vector<double>(8, 1.0), 4), (Cuts{0, 2, 4, 6, 8}));
  EXPECT_EQ(balance_stages(std::vector<double>(10, 1.0), 4), (Cuts{0, 2, 4, 7, 10}));
  EXPECT_EQ(balance_stages(std::vector<double>(3, 0.0), 3), (Cuts{0, 1, 2, 3}));
  EXPECT_EQ(balance_stages(std::vector<double>(5, 1.0), 1, 7, 7), (Cuts{0, 5}));
}

TEST(BalanceStages, TheHeadTakesThePlaceOfBlocks) {
  EXPECT_EQ(balance_stages(std::vector<double>(8, 1.0), 2, 0, 2), (Cuts{0, 5, 8}));
  EXPECT_EQ(balance_stages(std::vector<double>(8, 1.0), 2, 2, 0), (Cuts{0, 3, 8}));
}

TEST(BalanceStages, Refusals) {
  const std::vector<double> costs(3, 1.0);
  for (const int stages : {0, 4}) {
    try {
      (void)balance_stages(costs, stages);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
  EXPECT_THROW(balance_stages({}, 1), Error);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(balance_stages(std::vector<double>{1, nan}, 1), Error);
  EXPECT_THROW(balance_stages(std::vector<double>{1, -1}, 1), Error);
  EXPECT_THROW(balance_stages(costs, 1, nan), Error);
}

}  // namespace
}  // namespace lyceum

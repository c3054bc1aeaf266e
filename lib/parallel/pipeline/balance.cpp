#include "parallel/pipeline/balance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace lyceum {
namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();

class Partition {
 public:
  Partition(std::span<const double> costs, int stages, double first, double last)
      : blocks_(static_cast<int>(costs.size())), stages_(stages), first_(first), last_(last), sums_{0} {
    for (const double cost : costs) sums_.push_back(sums_.back() + cost);
  }

  /// Returns the least possible cost of the most expensive stage.
  double least_maximum() {
    return solve([](double before, double stage) { return std::max(before, stage); });
  }

  /// Returns the cuts with the least sum of squares among those whose stages cost at most `maximum`.
  std::vector<int> most_even(double maximum) {
    solve([maximum](double before, double stage) { return stage <= maximum ? before + stage * stage : impossible; });
    std::vector<int> cuts(static_cast<std::size_t>(stages_) + 1, blocks_);
    for (int s = stages_ - 1; s >= 0; --s) {
      cuts[static_cast<std::size_t>(s)] = from(s, cuts[static_cast<std::size_t>(s) + 1]);
    }
    return cuts;
  }

 private:
  double stage_cost(int stage, int begin, int end) const {
    return sums_[static_cast<std::size_t>(end)] - sums_[static_cast<std::size_t>(begin)] + (stage == 0 ? first_ : 0) +
           (stage == stages_ - 1 ? last_ : 0);
  }
  int& from(int stage, int end) {
    return from_[static_cast<std::size_t>(stage) * static_cast<std::size_t>(blocks_ + 1) +
                 static_cast<std::size_t>(end)];
  }

  /// Dynamic programming over (number of stages, number of blocks in them). Minimises a value that is folded over the
  /// stages by combine(value of the previous stages, cost of this stage), which must not decrease in either argument.
  /// Returns the minimum; from() then has the first block of each stage.
  template <class Combine>
  double solve(Combine&& combine) {
    from_.assign(static_cast<std::size_t>(stages_) * static_cast<std::size_t>(blocks_ + 1), 0);
    std::vector<double> before(static_cast<std::size_t>(blocks_) + 1, impossible);
    before[0] = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      std::vector<double> best(before.size(), impossible);
      for (int end = stage + 1; end <= blocks_ - (stages_ - 1 - stage); ++end) {
        for (int begin = stage; begin < end; ++begin) {
          const double value = combine(before[static_cast<std::size_t>(begin)], stage_cost(stage, begin, end));
          if (value < best[static_cast<std::size_t>(end)]) {
            best[static_cast<std::size_t>(end)] = value;
            from(stage, end) = begin;
          }
        }
      }
      before = std::move(best);
    }
    return before[static_cast<std::size_t>(blocks_)];
  }

  int blocks_, stages_;
  double first_, last_;
  std::vector<double> sums_;  // sums_[b]: total cost of the first b blocks
  std::vector<int> from_;     // [stages][blocks + 1]: first block of a stage that ends at a block
};

}  // namespace

std::vector<int> balance_stages(std::span<const double> block_costs, int stages, double first, double last) {
  require_usage(stages >= 1 && static_cast<std::size_t>(stages) <= block_costs.size(),
                "{} pipeline stages for {} blocks: every stage needs one; lower parallel.pipeline or "
                "parallel.virtual_stages",
                stages, block_costs.size());
  const auto good = [](double cost) { return std::isfinite(cost) && cost >= 0; };
  require(std::all_of(block_costs.begin(), block_costs.end(), good) && good(first) && good(last),
          "the cost of a block is negative or not finite");
  Partition partition(block_costs, stages, first, last);
  return partition.most_even(partition.least_maximum());
}

}  // namespace lyceum

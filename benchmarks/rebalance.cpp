// Measures how long all layers take to find a better placement of experts (rebalanced()), and how good it is:
//   bench_rebalance
// Columns of the table:
// - us/layer: median over layers with different loads; spread: the interquartile range relative to that
// - before, after: FLOPs of the busiest rank over the mean, averaged over layers
// - LPT: the same by the longest-processing-time rule from scratch, which does not keep numbers of experts per rank
// - moved: experts that change ranks, per layer
// The loads are those of softmax routing with a Zipf-like skew: exp(s · normal) tokens per expert.
#include "parallel/expert/rebalance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/random.h"

namespace {

using namespace lyceum;

constexpr int layers = 61;

std::vector<double> costs_of_layer(int layer, std::size_t experts, double skew) {
  const Philox random(5, fmt::format("layer {}", layer));
  std::vector<double> costs;
  for (std::size_t e = 0; e < experts; ++e) costs.push_back(1000 * std::exp(skew * random.normal(e)));
  return costs;
}

void measure(int ranks, std::int64_t experts, double skew) {
  const Placement present = Placement::contiguous(experts, ranks);
  const std::vector<int> kinds(static_cast<std::size_t>(experts));
  std::vector<double> microseconds;
  double before = 0, after = 0, lpt = 0, moved = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const std::vector<double> costs = costs_of_layer(layer, kinds.size(), skew);
    const double mean = std::reduce(costs.begin(), costs.end()) / ranks * layers;
    rebalanced(present, costs, kinds);  // warms caches
    const auto start = Clock::now();
    const Placement found = rebalanced(present, costs, kinds);
    microseconds.push_back(1e6 * seconds_since(start));
    before += busiest_cost(present, costs) / mean;
    after += busiest_cost(found, costs) / mean;
    lpt += busiest_cost(Placement::by_cost(costs, ranks), costs) / mean;
    moved += static_cast<double>(moved_experts(present, found).size()) / layers;
  }
  std::ranges::sort(microseconds);
  const double median = microseconds[layers / 2],
               spread = (microseconds[layers * 3 / 4] - microseconds[layers / 4]) / median;
  fmt::print("{:>5} {:>8} {:>5.2f} {:>9.1f} {:>6.0f}% {:>7.3f} {:>6.3f} {:>6.3f} {:>7.1f}\n", ranks, experts, skew,
             median, 100 * spread, before, after, lpt, moved);
}

}  // namespace

int main() {
  fmt::print("ranks  experts  skew  us/layer  spread  before  after    LPT   moved\n");
  for (const auto& [ranks, experts] : {std::pair(8, 64), std::pair(64, 256), std::pair(512, 1024)}) {
    for (const double skew : {0.2, 0.5, 1.0}) measure(ranks, experts, skew);
  }
}

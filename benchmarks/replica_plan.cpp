// Measures how long a rank takes to choose replicas of hot experts for the micro-batch of one layer (sums of the
// rows of all sources, plan_replicas() and shares_of_source()), and how good they are:
//   bench_replica_plan
// Columns of the table:
// - R: spare slots per rank
// - us: median over layers with different loads, with empty slots (first micro-batch of a step); next: with the
//   replicas of the previous micro-batch, whose rows differ by some 10 % for each source and expert
// - before, after, next: FLOPs of the busiest rank over the mean, averaged over layers; worst: maximum of `after`
// - copies: replicas of the first micro-batch, per layer; sent: replicas that the next one has to send
// The loads are those of softmax routing with a Zipf-like skew: exp(s · normal) tokens per expert.
#include "parallel/expert/replica_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/random.h"
#include "parallel/expert/replica_shares.h"

namespace {

using namespace lyceum;

constexpr int layers = 31;

std::vector<std::int32_t> rows_of_layer(int layer, int micro_batch, int ranks, std::int64_t experts, double skew) {
  const Philox hot(5, fmt::format("layer {}", layer)), noise(6, fmt::format("layer {} of {}", layer, micro_batch));
  std::vector<std::int32_t> rows;
  for (int s = 0; s < ranks; ++s) {
    for (std::int64_t e = 0; e < experts; ++e) {
      const double own = 0.1 * noise.normal(static_cast<std::uint64_t>(s * experts + e));
      rows.push_back(
          static_cast<std::int32_t>(1000 * std::exp(skew * hot.normal(static_cast<std::uint64_t>(e)) + own)));
    }
  }
  return rows;
}

struct Result {
  double microseconds, imbalance;
  ReplicaPlan plan;
};

Result timed(const ReplicaProblem& given) {
  const auto work = [&] {
    ReplicaProblem problem = given;
    const std::vector<std::int64_t> totals = problem.rows_of_experts(problem.sources());
    problem.totals = totals;
    ReplicaPlan plan = plan_replicas(problem);
    if (shares_of_source(problem, plan, problem.sources() / 2).size() > problem.rows.size()) std::abort();
    return plan;
  };
  work();  // warms caches
  const auto start = Clock::now();
  ReplicaPlan plan = work();
  const double microseconds = 1e6 * seconds_since(start);
  const std::vector<std::int64_t> loads = rank_loads(given, plan);
  const double mean = static_cast<double>(std::reduce(loads.begin(), loads.end())) / given.ranks();
  return {microseconds, static_cast<double>(std::ranges::max(loads)) / mean, std::move(plan)};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(int ranks, std::int64_t experts, double skew, int slots) {
  const Placement placement = Placement::contiguous(experts, ranks);
  const std::vector<std::int64_t> costs(static_cast<std::size_t>(experts), 2048);
  std::vector<double> first_time, next_time;
  double before = 0, after = 0, next = 0, worst = 0, copies = 0, sent = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const std::vector<std::int32_t> rows = rows_of_layer(layer, 0, ranks, experts, skew),
                                    later = rows_of_layer(layer, 1, ranks, experts, skew);
    ReplicaProblem problem{
        .placement = placement, .rows = rows, .costs = costs, .slots = slots, .held = {}, .ranks_per_host = 8};
    const Result first = timed(problem);
    ReplicaPlan none{.experts = std::vector<std::int32_t>(first.plan.experts.size(), -1), .rows = first.plan.rows};
    const std::vector<std::int64_t> loads = rank_loads(problem, none);
    before += static_cast<double>(std::ranges::max(loads)) * ranks /
              static_cast<double>(std::reduce(loads.begin(), loads.end())) / layers;
    const std::vector<std::int32_t> held = held_after(problem, first.plan);
    problem.held = held;
    problem.rows = later;
    const Result second = timed(problem);
    const std::vector<std::int32_t> after_second = held_after(problem, second.plan);
    for (std::size_t s = 0; s < held.size(); ++s) sent += held[s] != after_second[s] ? 1.0 / layers : 0;
    first_time.push_back(first.microseconds);
    next_time.push_back(second.microseconds);
    after += first.imbalance / layers;
    next += second.imbalance / layers;
    worst = std::max(worst, first.imbalance);
    copies += static_cast<double>(first.plan.replicas()) / layers;
  }
  fmt::print("{:>5} {:>8} {:>5.2f} {:>2} {:>8.1f} {:>8.1f} {:>7.3f} {:>6.3f} {:>6.3f} {:>6.3f} {:>7.1f} {:>6.1f}\n",
             ranks, experts, skew, slots, median(first_time), median(next_time), before, after, worst, next, copies,
             sent);
}

}  // namespace

int main() {
  fmt::print("ranks  experts  skew  R       us     next  before  after  worst   next  copies   sent\n");
  for (const auto& [ranks, experts] : {std::pair(8, 64), std::pair(64, 256), std::pair(512, 1024)}) {
    for (const double skew : {0.2, 0.5, 1.0}) {
      for (const int slots : {1, 2}) measure(ranks, experts, skew, slots);
    }
  }
}

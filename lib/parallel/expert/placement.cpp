#include "parallel/expert/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/range.h"

namespace lyceum {

namespace {

/// Returns the indices 0, 1, … sorted by descending value; equal values by ascending index.
template <class Value>
std::vector<std::size_t> falling(std::span<const Value> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  return order;
}

using Pair = std::pair<std::size_t, std::size_t>;

/// Returns pairs of the widest and the narrowest expert, of the second widest and the second narrowest, and so on.
/// Within a pair the lower index comes first; pairs are sorted by it.
std::vector<Pair> pairs_of(std::span<const std::int64_t> widths) {
  const std::vector<std::size_t> order = falling(widths);
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < order.size() / 2; ++i)
    pairs.push_back(std::minmax(order[i], order[order.size() - 1 - i]));
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace

Placement Placement::of_owners(std::vector<int> owner, int ranks) {
  require(ranks > 0, "experts cannot be placed on {} ranks", ranks);
  Placement placement;
  placement.owner = std::move(owner);
  placement.first.push_back(0);
  const auto owner_of = [&](std::int32_t e) { return placement.owner[static_cast<std::size_t>(e)]; };
  placement.order.resize(placement.owner.size());
  std::iota(placement.order.begin(), placement.order.end(), 0);
  std::ranges::stable_sort(placement.order, {}, owner_of);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto end = std::ranges::upper_bound(placement.order, rank, {}, owner_of);
    placement.first.push_back(end - placement.order.begin());
    require_usage(!placement.experts_of(rank).empty(),
                  "{} experts on {} ranks: every rank needs at least one; lower parallel.expert", placement.experts(),
                  ranks);
  }
  require(
      placement.order.empty() || (owner_of(placement.order.front()) >= 0 && owner_of(placement.order.back()) < ranks),
      "an expert is placed outside the {} ranks", ranks);
  return placement;
}

Placement Placement::contiguous(std::int64_t experts, int ranks) {
  std::vector<int> owner;
  for (int rank = 0; rank < ranks; ++rank) {
    owner.insert(owner.end(), static_cast<std::size_t>(part_of(experts, rank, ranks).count), rank);
  }
  return of_owners(std::move(owner), ranks);
}

std::string pairs_problem(std::span<const std::int64_t> widths, int ranks) {
  if (widths.size() % 2) return fmt::format("{} experts do not form pairs", widths.size());
  const std::vector<Pair> pairs = pairs_of(widths);
  const auto width = [&](const Pair& pair) { return widths[pair.first] + widths[pair.second]; };
  for (const Pair& pair : pairs) {
    if (width(pair) == width(pairs.front())) continue;
    return fmt::format("experts {} and {} together are {} wide, experts {} and {} are {}", pairs.front().first,
                       pairs.front().second, width(pairs.front()), pair.first, pair.second, width(pair));
  }
  if (ranks < 1 || pairs.size() % static_cast<std::size_t>(ranks)) {
    return fmt::format("{} pairs of experts cannot be divided among {} ranks", pairs.size(), ranks);
  }
  return {};
}

Placement Placement::pairs(std::span<const std::int64_t> widths, int ranks) {
  const std::string problem = pairs_problem(widths, ranks);
  require_usage(problem.empty(), "experts cannot be placed in pairs: {}", problem);
  const std::vector<Pair> pairs = pairs_of(widths);
  const std::size_t per_rank = pairs.size() / static_cast<std::size_t>(ranks);
  std::vector<int> owner(widths.size());
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    owner[pairs[p].first] = owner[pairs[p].second] = static_cast<int>(p / per_rank);
  }
  return of_owners(std::move(owner), ranks);
}

Placement Placement::by_cost(std::span<const double> costs, int ranks) {
  for (const double cost : costs) {
    require(std::isfinite(cost) && cost >= 0, "an expert of cost {} cannot be placed", cost);
  }
  struct Load {
    double cost = 0;
    std::int64_t experts = 0;  // breaks ties, so that no rank stays empty if costs are 0
  };
  std::vector<Load> loads(static_cast<std::size_t>(std::max(ranks, 1)));
  std::vector<int> owner(costs.size());
  for (const std::size_t e : falling(costs)) {
    const auto least = std::min_element(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
      return std::tie(a.cost, a.experts) < std::tie(b.cost, b.experts);
    });
    owner[e] = static_cast<int>(least - loads.begin());
    least->cost += costs[e];
    ++least->experts;
  }
  return of_owners(std::move(owner), ranks);
}

std::span<const std::int32_t> Placement::experts_of(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return std::span(order).subspan(static_cast<std::size_t>(first[r]),
                                  static_cast<std::size_t>(first[r + 1] - first[r]));
}

}  // namespace lyceum

#include "parallel/expert/rebalance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.h"

namespace lyceum {

namespace {

/// The share of the relief of all exchanges that the chosen ones must reach.
constexpr double enough = 0.95;
/// An exchange must lower the cost of the busiest rank by more than this share of it, beyond rounding.
constexpr double least_relief = 1e-9;

struct Exchange {
  std::size_t from, to;  // positions in Placement::order: of the busiest rank, and of the other one
  double busiest = 0;    // cost of the busiest of all ranks after the exchange
};

std::vector<double> rank_costs(const Placement& placement, std::span<const double> costs) {
  std::vector<double> sums(static_cast<std::size_t>(placement.ranks()));
  for (std::size_t e = 0; e < costs.size(); ++e) sums[static_cast<std::size_t>(placement.owner[e])] += costs[e];
  return sums;
}

/// The state of the search: a placement, and its ranks in ascending order of cost.
class Search {
 public:
  Search(const Placement& present, std::span<const double> costs, std::span<const int> kinds)
      : costs_(costs), kinds_(kinds), first_(present.first), order_(present.order), sums_(rank_costs(present, costs)) {
    ranks_.resize(sums_.size());
    std::iota(ranks_.begin(), ranks_.end(), std::size_t{0});
    std::ranges::sort(ranks_, [&](std::size_t a, std::size_t b) { return before(a, b); });
  }

  double busiest() const { return sums_[ranks_.back()]; }

  /// Returns the best exchange of the busiest rank; nothing if none relieves it.
  std::optional<Exchange> best() const {
    const std::size_t busy = ranks_.back();
    std::optional<Exchange> found;
    double limit = sums_[busy] * (1 - least_relief);  // the busier of two ranks must be left with less than this
    for (std::size_t i = 0; i + 1 < ranks_.size(); ++i) {
      const std::size_t other = ranks_[i];
      // Two ranks cannot both be left with less than their mean, and all further ranks have more than this one.
      if ((sums_[busy] + sums_[other]) / 2 >= limit) break;
      for (std::size_t from = slot(busy); from < slot(busy + 1); ++from) {
        for (std::size_t to = slot(other); to < slot(other + 1); ++to) {
          const std::size_t given = expert(from), taken = expert(to);
          const double relief = costs_[given] - costs_[taken];
          const double left = std::max(sums_[busy] - relief, sums_[other] + relief);
          if (!(left < limit) || kinds_[given] != kinds_[taken]) continue;
          limit = left;
          found = Exchange{.from = from, .to = to};
        }
      }
    }
    return found;
  }

  /// Makes an exchange of the busiest rank with the rank of `exchange.to`.
  void make(Exchange& exchange) {
    const std::size_t busy = ranks_.back(), other = rank_of(exchange.to);
    std::swap(order_[exchange.from], order_[exchange.to]);
    for (const std::size_t rank : {busy, other}) {
      ranks_.erase(std::ranges::find(ranks_, rank));
      sums_[rank] = 0;  // summed anew, so that rounding errors do not add up
      for (std::size_t s = slot(rank); s < slot(rank + 1); ++s) sums_[rank] += costs_[expert(s)];
    }
    for (const std::size_t rank : {busy, other}) {
      ranks_.insert(std::ranges::lower_bound(ranks_, rank, [&](std::size_t a, std::size_t b) { return before(a, b); }),
                    rank);
    }
    exchange.busiest = busiest();
  }

 private:
  bool before(std::size_t a, std::size_t b) const { return std::pair(sums_[a], a) < std::pair(sums_[b], b); }
  std::size_t slot(std::size_t rank) const { return static_cast<std::size_t>(first_[rank]); }
  std::size_t expert(std::size_t slot) const { return static_cast<std::size_t>(order_[slot]); }
  std::size_t rank_of(std::size_t slot) const {
    const auto end = std::ranges::upper_bound(first_, static_cast<std::int64_t>(slot));
    return static_cast<std::size_t>(end - first_.begin() - 1);
  }

  std::span<const double> costs_;
  std::span<const int> kinds_;
  std::vector<std::int64_t> first_;
  std::vector<std::int32_t> order_;
  std::vector<double> sums_;        // [ranks]
  std::vector<std::size_t> ranks_;  // by cost, then by rank
};

/// Returns a placement with these owners: experts that stay keep their slots, and each of the others gets a slot of its
/// kind that an expert of `present` leaves. Every rank must own as many experts of each kind as in `present`.
Placement in_slots_of(const Placement& present, std::vector<int> owner, std::span<const int> kinds) {
  Placement result{.owner = std::move(owner), .order = present.order, .first = present.first};
  std::vector<std::vector<std::int32_t>> arriving(static_cast<std::size_t>(present.ranks()));
  for (const std::int32_t expert : moved_experts(present, result)) {
    arriving[static_cast<std::size_t>(result.owner[static_cast<std::size_t>(expert)])].push_back(expert);
  }
  for (std::size_t slot = 0; slot < present.order.size(); ++slot) {
    const auto leaving = static_cast<std::size_t>(present.order[slot]);
    const int rank = present.owner[leaving];
    if (result.owner[leaving] == rank) continue;
    std::vector<std::int32_t>& here = arriving[static_cast<std::size_t>(rank)];
    const auto next = std::ranges::find(here, kinds[leaving],
                                        [&](std::int32_t expert) { return kinds[static_cast<std::size_t>(expert)]; });
    require(next != here.end(), "no expert of its kind takes over the slot of expert {}", leaving);
    result.order[slot] = *next;
    here.erase(next);
  }
  return result;
}

}  // namespace

double busiest_cost(const Placement& placement, std::span<const double> costs) {
  return std::ranges::max(rank_costs(placement, costs));
}

double busiest_over_mean(std::span<const double> costs_by_rank) {
  const double mean =
      std::reduce(costs_by_rank.begin(), costs_by_rank.end()) / static_cast<double>(costs_by_rank.size());
  return mean > 0 ? std::ranges::max(costs_by_rank) / mean : 1;
}

double busiest_over_mean(const Placement& placement, std::span<const double> costs) {
  return busiest_over_mean(rank_costs(placement, costs));
}

Placement rebalanced(const Placement& present, std::span<const double> costs, std::span<const int> kinds) {
  const std::size_t experts = present.owner.size();
  require(costs.size() == experts && kinds.size() == experts, "{} experts have {} costs and {} kinds", experts,
          costs.size(), kinds.size());
  for (const double cost : costs) {
    require(std::isfinite(cost) && cost >= 0, "an expert of cost {} cannot be placed", cost);
  }
  Search search(present, costs, kinds);
  const double initial = search.busiest();
  std::vector<Exchange> exchanges;
  // Each exchange leaves both ranks below the busiest one, so the search ends; the limit only bounds its time.
  while (exchanges.size() < experts) {
    std::optional<Exchange> next = search.best();
    if (!next) break;
    search.make(*next);
    exchanges.push_back(*next);
  }
  if (exchanges.empty() || !(exchanges.back().busiest < initial)) return present;
  const double sufficient = initial - enough * (initial - exchanges.back().busiest);
  std::vector<std::int32_t> order = present.order;
  for (const Exchange& exchange : exchanges) {
    std::swap(order[exchange.from], order[exchange.to]);
    if (exchange.busiest <= sufficient) break;
  }
  std::vector<int> owner(experts);
  for (int rank = 0; rank < present.ranks(); ++rank) {
    const auto first = static_cast<std::size_t>(present.first[static_cast<std::size_t>(rank)]);
    for (const std::int32_t expert : std::span(order).subspan(first, present.experts_of(rank).size())) {
      owner[static_cast<std::size_t>(expert)] = rank;
    }
  }
  return in_slots_of(present, std::move(owner), kinds);
}

std::optional<Placement> better_placement(const Placement& present, std::span<const double> costs,
                                          std::span<const int> kinds, double gain) {
  Placement found = rebalanced(present, costs, kinds);
  const double before = busiest_cost(present, costs);
  if (!(before - busiest_cost(found, costs) > gain * before)) return std::nullopt;
  return found;
}

Placement with_two_exchanged(Placement placement, std::span<const int> kinds) {
  for (std::size_t a = 0; a < placement.order.size(); ++a) {
    for (std::size_t b = a + 1; b < placement.order.size(); ++b) {
      const auto one = static_cast<std::size_t>(placement.order[a]),
                 other = static_cast<std::size_t>(placement.order[b]);
      if (kinds[one] != kinds[other] || placement.owner[one] == placement.owner[other]) continue;
      std::swap(placement.owner[one], placement.owner[other]);
      std::swap(placement.order[a], placement.order[b]);
      return placement;
    }
  }
  return placement;
}

std::vector<std::int32_t> moved_experts(const Placement& before, const Placement& after) {
  std::vector<std::int32_t> moved;
  for (std::size_t e = 0; e < before.owner.size(); ++e) {
    if (before.owner[e] != after.owner[e]) moved.push_back(static_cast<std::int32_t>(e));
  }
  return moved;
}

}  // namespace lyceum

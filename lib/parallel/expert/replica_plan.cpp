#include "parallel/expert/replica_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.h"

namespace lyceum {

namespace {

/// Maxima that differ by less than 1/targets_per_mean of the mean count as equal.
constexpr std::int64_t targets_per_mean = 64;
/// The number of such steps by which the maximum may be larger if that keeps replicas in their slots.
constexpr std::int64_t steps_for_held = 2;

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::size_t as_index(std::int64_t i) { return static_cast<std::size_t>(i); }

void check(const ReplicaProblem& problem) {
  const std::size_t experts = problem.placement.owner.size();
  const auto ranks = static_cast<std::size_t>(problem.ranks());
  require(problem.slots > 0 && experts > 0, "replicas of {} experts cannot use {} spare slots", experts, problem.slots);
  require(problem.costs.size() == experts && std::ranges::all_of(problem.costs, [](std::int64_t c) { return c > 0; }),
          "replicas of {} experts need as many positive costs, not {}", experts, problem.costs.size());
  require(problem.rows.size() % (experts * ranks) == 0 && !problem.rows.empty(),
          "{} numbers of rows are not the same number for each of {} experts and {} ranks", problem.rows.size(),
          experts, ranks);
  require(problem.totals.empty() || problem.totals.size() == experts, "{} totals of rows are not those of {} experts",
          problem.totals.size(), experts);
  require(problem.held.empty() || problem.held.size() == ranks * as_index(problem.slots),
          "{} ranks with {} spare slots do not hold {} replicas", ranks, problem.slots, problem.held.size());
}

/// The search for replicas that meet a target.
class ReplicaSearch {
 public:
  explicit ReplicaSearch(const ReplicaProblem& problem)
      : problem_(problem),
        slots_(as_index(problem.slots)),
        rows_(problem.rows_of_all()),
        loads_(as_index(problem.ranks())),
        by_load_(loads_.size()),
        hottest_(problem.placement.order) {
    for (std::size_t e = 0; e < rows_.size(); ++e) loads_[owner(e)] += rows_[e] * problem.costs[e];
    std::iota(by_load_.begin(), by_load_.end(), std::size_t{0});
    std::ranges::sort(
        by_load_, [&](std::size_t a, std::size_t b) { return std::pair(-loads_[a], a) < std::pair(-loads_[b], b); });
    for (std::size_t slot = 0; slot < problem.held.size(); ++slot) {
      if (problem.held[slot] >= 0) held_.push_back(slot);
    }
    std::ranges::stable_sort(held_, {}, [&](std::size_t slot) { return problem.held[slot]; });
    const std::int64_t total = std::accumulate(loads_.begin(), loads_.end(), std::int64_t{0});
    mean_ = divided_up(total, std::ssize(loads_));
    for (const std::size_t rank : by_load_) {
      if (loads_[rank] <= mean_) break;
      std::ranges::sort(experts_of(rank), [&](std::int32_t a, std::int32_t b) {
        return std::pair(-load_of(a), a) < std::pair(-load_of(b), b);
      });
    }
  }

  std::int64_t mean() const { return mean_; }
  std::int64_t busiest() const { return loads_[by_load_.front()]; }
  bool any_held() const { return !held_.empty(); }
  ReplicaPlan none() const {
    return {.experts = std::vector<std::int32_t>(loads_.size() * slots_, -1),
            .rows = std::vector<std::int64_t>(loads_.size() * slots_)};
  }

  enum class Use { held_only, held_first, any };
  /// Returns replicas with which no rank has more than `target`, which is at least the mean; nothing if none are found.
  std::optional<ReplicaPlan> meet(std::int64_t target, Use use) {
    target_ = target;
    plan_ = none();
    now_ = loads_;
    left_ = rows_;
    lent_.assign(loads_.size(), 0);
    if (use != Use::any) {
      for (const std::size_t rank : by_load_) {
        if (loads_[rank] <= target_) break;
        relieve_by_held(rank);
      }
    }
    if (use != Use::held_only) {
      find_rooms();
      for (const std::size_t rank : by_load_) {
        if (loads_[rank] <= target_) break;
        if (!relieve(rank)) return std::nullopt;
      }
    }
    for (const std::size_t rank : by_load_) {
      if (loads_[rank] <= target_) break;
      if (now_[rank] > target_) return std::nullopt;
    }
    return std::move(plan_);
  }

 private:
  /// A rank below the target with an unused spare slot.
  struct Room {
    std::int64_t load;  // that it can take
    std::size_t rank;
    auto operator<=>(const Room&) const = default;
  };

  std::size_t owner(std::size_t expert) const { return as_index(problem_.placement.owner[expert]); }
  std::int64_t load_of(std::int32_t expert) const { return rows_[as_index(expert)] * problem_.costs[as_index(expert)]; }
  std::span<std::int32_t> experts_of(std::size_t rank) {
    const auto first = as_index(problem_.placement.first[rank]), end = as_index(problem_.placement.first[rank + 1]);
    return std::span(hottest_).subspan(first, end - first);
  }
  bool may_lend(std::size_t rank) const { return problem_.most_lent == 0 || lent_[rank] < problem_.most_lent; }

  /// The number of rows of an expert that its owner should give away, at most those that are left.
  std::int64_t surplus(std::size_t expert) const {
    return std::min(divided_up(now_[owner(expert)] - target_, problem_.costs[expert]), left_[expert]);
  }

  void give(std::size_t expert, std::size_t slot, std::int64_t rows) {
    plan_.experts[slot] = static_cast<std::int32_t>(expert);
    plan_.rows[slot] = rows;
    left_[expert] -= rows;
    now_[owner(expert)] -= rows * problem_.costs[expert];
    now_[slot / slots_] += rows * problem_.costs[expert];
    ++lent_[owner(expert)];
  }

  /// Gives rows of a rank to replicas that are held, until it has no more than the target or no row fits.
  void relieve_by_held(std::size_t rank) {
    for (const std::int32_t hot : experts_of(rank)) {
      const std::size_t expert = as_index(hot);
      const auto slots =
          std::ranges::equal_range(held_, hot, {}, [&](std::size_t slot) { return problem_.held[slot]; });
      while (now_[rank] > target_ && left_[expert] > 0 && may_lend(rank)) {
        const std::int64_t wanted = surplus(expert);
        std::size_t best = 0;
        std::int64_t best_rows = 0, best_room = 0;
        for (const std::size_t slot : slots) {
          const std::size_t to = slot / slots_;
          if (plan_.experts[slot] >= 0 || to == rank) continue;
          const std::int64_t room = target_ - now_[to], rows = std::min(wanted, room / problem_.costs[expert]);
          if (rows > best_rows || (rows == best_rows && rows > 0 && room < best_room)) {
            best = slot;
            best_rows = rows;
            best_room = room;
          }
        }
        if (best_rows == 0) break;
        give(expert, best, best_rows);
      }
      if (now_[rank] <= target_) return;
    }
  }

  /// Returns the first unused slot of a rank: one that holds the expert, else one that holds nothing, else any.
  std::size_t unused_slot(std::size_t rank, std::size_t expert) const {
    std::size_t best = 0;
    int best_quality = -1;
    for (std::size_t slot = rank * slots_; slot < (rank + 1) * slots_; ++slot) {
      if (plan_.experts[slot] >= 0) continue;
      const std::int32_t held = problem_.held.empty() ? -1 : problem_.held[slot];
      const int quality = held == static_cast<std::int32_t>(expert) ? 2 : held < 0 ? 1 : 0;
      if (quality > best_quality) best = slot, best_quality = quality;
    }
    return best;
  }
  bool has_unused_slot(std::size_t rank) const {
    for (std::size_t slot = rank * slots_; slot < (rank + 1) * slots_; ++slot) {
      if (plan_.experts[slot] < 0) return true;
    }
    return false;
  }

  void find_rooms() {
    rooms_.clear();
    for (const std::size_t rank : by_load_) {
      if (loads_[rank] < target_ && now_[rank] < target_ && has_unused_slot(rank)) {
        rooms_.push_back({target_ - now_[rank], rank});
      }
    }
    if (!std::ranges::is_sorted(rooms_)) std::ranges::sort(rooms_);
  }

  /// Gives rows of a rank away until it has no more than the target. False if it is left with more.
  bool relieve(std::size_t rank) {
    for (const std::int32_t hot : experts_of(rank)) {
      const std::size_t expert = as_index(hot);
      while (now_[rank] > target_ && left_[expert] > 0) {
        if (rooms_.empty() || !may_lend(rank)) return false;
        const std::int64_t cost = problem_.costs[expert], wanted = surplus(expert);
        auto room = std::ranges::lower_bound(rooms_, wanted * cost, {}, &Room::load);
        if (room == rooms_.end()) --room;
        const std::int64_t rows = std::min(wanted, room->load / cost);
        if (rows == 0) break;  // a narrower expert may fit
        give(expert, unused_slot(room->rank, expert), rows);
        const Room rest{room->load - rows * cost, room->rank};
        rooms_.erase(room);
        if (rest.load > 0 && has_unused_slot(rest.rank)) {
          rooms_.insert(std::ranges::lower_bound(rooms_, rest), rest);
        }
      }
      if (now_[rank] <= target_) return true;
    }
    return false;
  }

  const ReplicaProblem& problem_;
  std::size_t slots_;
  std::vector<std::int64_t> rows_;     // [experts]
  std::vector<std::int64_t> loads_;    // [ranks]: without replicas
  std::vector<std::size_t> by_load_;   // ranks in descending order of loads_
  std::vector<std::int32_t> hottest_;  // Placement::order, with the experts of ranks above the mean by descending load
  std::vector<std::size_t> held_;      // spare slots that hold a replica, sorted by expert, then by slot
  std::int64_t mean_ = 0;
  // state of meet()
  std::int64_t target_ = 0;
  ReplicaPlan plan_;
  std::vector<std::int64_t> now_;   // [ranks]: with the replicas of plan_
  std::vector<std::int64_t> left_;  // [experts]: rows of the owner
  std::vector<int> lent_;           // [ranks]: replicas of the rank's experts
  std::vector<Room> rooms_;         // ascending
};

}  // namespace

std::vector<std::int32_t> dealt_rows(std::span<const std::int64_t> totals, std::int64_t sources) {
  std::vector<std::int32_t> rows(totals.size() * static_cast<std::size_t>(sources));
  std::int64_t first = 0;  // number of the expert's first row among those of all experts
  for (std::size_t e = 0; e < totals.size(); ++e) {
    const std::int64_t end = first + totals[e];
    for (std::int64_t source = 0; source < sources; ++source) {
      const auto before = [&](std::int64_t row) { return (row - source + sources - 1) / sources; };  // dealt to it
      rows[static_cast<std::size_t>(source) * totals.size() + e] =
          static_cast<std::int32_t>(before(end) - before(first));
    }
    first = end;
  }
  return rows;
}

std::int64_t ReplicaPlan::replicas() const {
  return std::ranges::count_if(experts, [](std::int32_t expert) { return expert >= 0; });
}

ReplicaPlan plan_replicas(const ReplicaProblem& problem) {
  check(problem);
  ReplicaSearch search(problem);
  const std::int64_t mean = search.mean(), step = divided_up(mean, targets_per_mean);
  // Target i is mean + i · step. The last one is met without replicas.
  std::int64_t unmet = -1, met = divided_up(search.busiest() - mean, std::max<std::int64_t>(step, 1));
  ReplicaPlan best = search.none();
  while (met - unmet > 1) {
    const std::int64_t middle = unmet + (met - unmet) / 2;
    if (std::optional<ReplicaPlan> found = search.meet(mean + middle * step, ReplicaSearch::Use::any)) {
      met = middle;
      best = std::move(*found);
    } else {
      unmet = middle;
    }
  }
  if (best.replicas() == 0 || !search.any_held()) return best;
  for (const ReplicaSearch::Use use : {ReplicaSearch::Use::held_only, ReplicaSearch::Use::held_first}) {
    for (std::int64_t i = met; i <= met + steps_for_held; ++i) {
      if (std::optional<ReplicaPlan> found = search.meet(mean + i * step, use)) return std::move(*found);
    }
  }
  return best;
}

std::vector<std::int64_t> ReplicaProblem::rows_of_experts(std::int64_t end) const {
  const std::size_t experts = placement.owner.size();
  std::vector<std::int64_t> sums(experts);
  for (std::int64_t s = 0; s < end; ++s) {
    const auto of_source = rows.subspan(as_index(s) * experts, experts);
    for (std::size_t e = 0; e < experts; ++e) sums[e] += of_source[e];
  }
  return sums;
}

std::vector<std::int64_t> rank_loads(const ReplicaProblem& problem, const ReplicaPlan& plan) {
  std::vector<std::int64_t> loads(as_index(problem.ranks()));
  const std::vector<std::int64_t> rows = problem.rows_of_all(),
                                  moved = moved_loads(problem.placement, problem.costs, plan);
  for (std::size_t e = 0; e < rows.size(); ++e) {
    loads[as_index(problem.placement.owner[e])] += rows[e] * problem.costs[e];
  }
  for (std::size_t rank = 0; rank < loads.size(); ++rank) loads[rank] += moved[rank];
  return loads;
}

std::vector<std::int64_t> moved_loads(const Placement& placement, std::span<const std::int64_t> costs,
                                      const ReplicaPlan& plan) {
  std::vector<std::int64_t> loads(as_index(placement.ranks()));
  const std::size_t slots = plan.experts.size() / loads.size();
  for (std::size_t slot = 0; slot < plan.experts.size(); ++slot) {
    if (plan.experts[slot] < 0) continue;
    const std::size_t expert = as_index(plan.experts[slot]);
    const std::int64_t load = plan.rows[slot] * costs[expert];
    loads[as_index(placement.owner[expert])] -= load;
    loads[slot / slots] += load;
  }
  return loads;
}

std::vector<std::int32_t> held_after(const ReplicaProblem& problem, const ReplicaPlan& plan) {
  std::vector<std::int32_t> held(problem.held.begin(), problem.held.end());
  held.resize(plan.experts.size(), -1);
  for (std::size_t slot = 0; slot < held.size(); ++slot) {
    if (plan.experts[slot] >= 0) held[slot] = plan.experts[slot];
  }
  return held;
}

}  // namespace lyceum

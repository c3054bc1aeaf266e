#include "parallel/expert/replica_shares.h"

#include <algorithm>
#include <span>

#include "core/range.h"

namespace lyceum {

namespace {

std::size_t position(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The owner of an expert, or a rank with a replica.
struct Place {
  std::int32_t slot;  // −1: owner
  std::int64_t rank;
  std::int64_t room;       // rows that it still takes
  std::int64_t taken = 0;  // from the source of interest
};

/// Divides the rows of one expert after the other among places. The rows of a source go to the place on its rank, then
/// to those on its host, then to the others, as long as they have room.
class Division {
 public:
  Division(const ReplicaProblem& problem, std::int64_t source)
      : problem_(problem),
        source_(source),
        experts_(problem.placement.experts()),
        per_rank_(problem.sources() / problem.ranks()),
        earlier_(problem.rows_of_experts(source)),
        left_(position(problem.sources()), -1) {}

  /// Sets Place::taken.
  void divide(std::int32_t expert, std::span<Place> places) {
    for (Place& place : places) take(expert, place, place.rank, 1);
    const std::int64_t host = problem_.ranks_per_host;
    if (host > 1 && host < problem_.ranks()) {
      for (Place& place : places) take(expert, place, place.rank / host * host, host);
    }
    // The rest of all sources, in order, goes to the rooms, in order.
    const std::int64_t count = left(expert, source_);
    std::int64_t before = earlier_[position(expert)];  // rest of the earlier sources
    for (const std::int64_t source : touched_) {
      if (source < source_) before -= rows(expert, source) - left_[position(source)];
      left_[position(source)] = -1;
    }
    touched_.clear();
    Range rooms{0, 0};
    for (Place& place : places) {
      rooms = {rooms.end(), place.room};
      place.taken += common(rooms, {before, count}).count;
    }
  }

 private:
  std::int32_t rows(std::int32_t expert, std::int64_t source) const {
    return problem_.rows[position(source * experts_ + expert)];
  }
  /// Returns the rows of a source that have no place yet.
  std::int64_t& left(std::int32_t expert, std::int64_t source) {
    std::int64_t& left = left_[position(source)];
    if (left < 0) {
      left = rows(expert, source);
      touched_.push_back(source);
    }
    return left;
  }
  /// Gives rows of the sources of `ranks` ranks, in order, to a place until it is full.
  void take(std::int32_t expert, Place& place, std::int64_t first_rank, std::int64_t ranks) {
    const std::int64_t end = std::min(first_rank + ranks, std::int64_t{problem_.ranks()}) * per_rank_;
    for (std::int64_t source = first_rank * per_rank_; source < end && place.room > 0; ++source) {
      std::int64_t& rows = left(expert, source);
      const std::int64_t count = std::min(rows, place.room);
      rows -= count;
      place.room -= count;
      if (source == source_) place.taken += count;
    }
  }

  const ReplicaProblem& problem_;
  std::int64_t source_, experts_, per_rank_;
  std::vector<std::int64_t> earlier_;  // [experts]: rows of the sources before source_
  std::vector<std::int64_t> left_;     // [sources]: see left(); −1: all
  std::vector<std::int64_t> touched_;  // the sources for which left_ is set
};

}  // namespace

std::vector<ReplicaShare> shares_of_source(const ReplicaProblem& problem, const ReplicaPlan& plan,
                                           std::int64_t source) {
  const auto expert_of = [&](std::int32_t slot) { return plan.experts[position(slot)]; };
  std::vector<std::int32_t> slots;  // of replicas, by expert
  for (std::size_t slot = 0; slot < plan.experts.size(); ++slot) {
    if (plan.experts[slot] >= 0) slots.push_back(static_cast<std::int32_t>(slot));
  }
  if (slots.empty()) return {};
  std::ranges::stable_sort(slots, {}, expert_of);
  const std::vector<std::int64_t> rows = problem.rows_of_all();
  Division division(problem, source);
  std::vector<ReplicaShare> shares;
  std::vector<Place> places;
  for (auto next = slots.begin(); next != slots.end();) {
    const std::int32_t expert = expert_of(*next);
    places.assign(1, {-1, problem.placement.owner[position(expert)], rows[position(expert)]});
    for (; next != slots.end() && expert_of(*next) == expert; ++next) {
      places.push_back({*next, *next / problem.slots, plan.rows[position(*next)]});
      places.front().room -= places.back().room;
    }
    division.divide(expert, places);
    std::int64_t first = 0;
    for (const Place& place : places) {
      if (place.taken > 0) shares.push_back({expert, place.slot, first, place.taken});
      first += place.taken;
    }
  }
  return shares;
}

}  // namespace lyceum

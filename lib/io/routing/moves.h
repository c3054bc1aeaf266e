#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "io/routing/history.h"

namespace lyceum {

/// The moves of a log that agree with the ranks of its experts, and the ranks before them.
struct KnownMoves {
  std::size_t first = 0;  // number of the first move that agrees; the earlier ones are unknown
  std::size_t end = 0;
  std::vector<std::vector<std::int64_t>> ranks;  // [routers, experts]: before move `first`

  std::size_t count() const { return end - first; }
};

/// Undoes the moves of a log from its expert_rank, newest first. Stops at a move whose `to` is not the rank of its
/// expert at that time: a version that does not record moves has continued the file. Throws a bad_input Error if the
/// moves go back in steps, or are not of experts of the log.
KnownMoves known_moves(const RoutingReader& log);

/// Calls use(move) for each of these moves, in order. Reads the log in parts.
void for_each_move(const RoutingReader& log, RecordRange moves, const std::function<void(const ExpertMove&)>& use);

/// Returns the known moves, in order.
std::vector<ExpertMove> read_known_moves(const RoutingReader& log);

/// The ranks of all experts of a log at ascending steps. Reads the moves in parts.
class RanksOfExperts {
 public:
  /// `log` must outlive this.
  explicit RanksOfExperts(const RoutingReader& log);
  /// Makes the moves before step `step`, which must not decrease.
  void advance(std::int64_t step);
  /// Returns the ranks of a router's experts.
  const std::vector<std::int64_t>& of(std::size_t router) const { return ranks_[router]; }
  /// Returns the number in the log of the next move.
  std::size_t next() const { return next_; }

 private:
  const RoutingReader& log_;
  std::vector<std::vector<std::int64_t>> ranks_;
  std::size_t next_, end_;
  std::vector<ExpertMove> part_;  // a part of the log that begins with move `part_first_`
  std::size_t part_first_;
};

}  // namespace lyceum

#include "io/routing/moves.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "core/error.h"

namespace lyceum {

namespace {

/// Number of moves that are read at once.
constexpr std::size_t part_moves = 1 << 16;

}  // namespace

KnownMoves known_moves(const RoutingReader& log) {
  KnownMoves known{.first = log.move_count(), .end = log.move_count(), .ranks = {}};
  for (const RoutingHistory::Layer& router : log.routers()) known.ranks.push_back(router.expert_rank);
  bool agrees = true;
  std::int64_t later = std::numeric_limits<std::int64_t>::max();
  for (std::size_t end = log.move_count(); end > 0;) {
    const std::size_t first = end - std::min(end, part_moves);
    const std::vector<ExpertMove> part = log.read_moves({first, end});
    for (std::size_t i = part.size(); i-- > 0;) {
      const ExpertMove& move = part[i];
      require_input(move.step <= later, "{}: the moves of experts go back in steps after step {}", log.name(),
                    move.step);
      later = move.step;
      std::int64_t& rank = known.ranks[log.ffn_router(move.layer)][static_cast<std::size_t>(move.expert)];
      agrees = agrees && move.to == rank;
      if (!agrees) continue;  // the older moves are only checked
      rank = move.from;
      known.first = first + i;
    }
    end = first;
  }
  return known;
}

void for_each_move(const RoutingReader& log, RecordRange moves, const std::function<void(const ExpertMove&)>& use) {
  for (std::size_t first = moves.begin; first < moves.end; first += part_moves) {
    std::ranges::for_each(log.read_moves({first, std::min(first + part_moves, moves.end)}), use);
  }
}

std::vector<ExpertMove> read_known_moves(const RoutingReader& log) {
  const KnownMoves known = known_moves(log);
  std::vector<ExpertMove> moves;
  for_each_move(log, {known.first, known.end}, [&](const ExpertMove& move) { moves.push_back(move); });
  return moves;
}

RanksOfExperts::RanksOfExperts(const RoutingReader& log) : log_(log) {
  KnownMoves known = known_moves(log);
  ranks_ = std::move(known.ranks);
  next_ = part_first_ = known.first;
  end_ = known.end;
}

void RanksOfExperts::advance(std::int64_t step) {
  for (; next_ < end_; ++next_) {
    if (next_ == part_first_ + part_.size()) {
      part_first_ = next_;
      part_ = log_.read_moves({next_, std::min(next_ + part_moves, end_)});
    }
    const ExpertMove& move = part_[next_ - part_first_];
    if (move.step >= step) return;
    ranks_[log_.ffn_router(move.layer)][static_cast<std::size_t>(move.expert)] = move.to;
  }
}

}  // namespace lyceum

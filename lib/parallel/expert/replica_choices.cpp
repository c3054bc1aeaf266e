#include "parallel/expert/replica_choices.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/copy.h"
#include "core/error.h"
#include "kernels/choices.h"
#include "kernels/permute.h"

namespace lyceum {

std::vector<std::int32_t> NumberedChoices::rows(const Stream& stream) const {
  require(position.size() <= std::numeric_limits<std::int32_t>::max(), "{} choices of experts are too many",
          position.size());
  const std::vector<std::int64_t> first = values_of<std::int64_t>(stream, first_position);
  std::vector<std::int32_t> rows;
  for (std::size_t e = 0; e + 1 < first.size(); ++e) rows.push_back(static_cast<std::int32_t>(first[e + 1] - first[e]));
  return rows;
}

NumberedChoices numbered(const Stream& stream, const Tensor& index, std::int64_t experts, std::int64_t choices) {
  const NumberedChoices result{.index = index,
                               .position = Tensor::empty(stream, DType::i64, {index.size()}),
                               .first_position = Tensor::empty(stream, DType::i64, {experts + 1})};
  const Tensor pair_of_position = Tensor::empty(stream, DType::i64, {index.size()});
  std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  const double expected = static_cast<double>(index.size()) / static_cast<double>(choices);
  launch(stream, SortByExpert{.index = index.matrix<const std::int32_t>(),
                              .order = tensor_of(stream, {experts}, order).span<const std::int32_t>(),
                              .begin = result.first_position.span<std::int64_t>(),
                              .slot_pair = pair_of_position.span<std::int64_t>(),
                              .pair_slot = result.position.span<std::int64_t>(),
                              .others = choices - experts,
                              .expected = std::vector<double>(order.size(), expected)});
  return result;
}

std::vector<std::int32_t> rows_of_sources(const ProcessGroup& experts, const ProcessGroup& expert_tensor,
                                          std::span<const std::int32_t> own) {
  std::vector<std::int32_t> of_rank(own.begin(), own.end());
  for (const ProcessGroup* const group : {&expert_tensor, &experts}) {
    if (group->size() == 1) continue;
    std::vector<std::int32_t> all(of_rank.size() * static_cast<std::size_t>(group->size()));
    group->all_gather(of_rank, all);
    of_rank = std::move(all);
  }
  return of_rank;
}

std::vector<std::int32_t> rehearsed_rows(std::int64_t pairs, std::int64_t choices, std::int64_t experts,
                                         std::int64_t sources) {
  std::vector<std::int64_t> totals;
  const auto first = [&](std::int64_t expert) { return (expert * pairs * sources + choices - 1) / choices; };
  for (std::int64_t expert = 0; expert < experts; ++expert) totals.push_back(first(expert + 1) - first(expert));
  return dealt_rows(totals, sources);
}

Tensor divided(const Stream& stream, const NumberedChoices& chosen, std::span<const ReplicaShare> shares,
               std::int64_t choices) {
  const std::int64_t experts = chosen.first_position.size() - 1;
  std::vector<std::int32_t> first(static_cast<std::size_t>(experts + 1)), destination;
  std::vector<std::int64_t> begin;
  for (const ReplicaShare& share : shares) {
    ++first[static_cast<std::size_t>(share.expert) + 1];
    begin.push_back(share.first);
    destination.push_back(share.slot < 0 ? share.expert : static_cast<std::int32_t>(choices) + share.slot);
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  const std::int64_t all = std::ssize(begin);
  const Tensor y = Tensor::empty(stream, DType::i32, chosen.index.shape());
  launch(stream, DivideChoices{.index = chosen.index.matrix<const std::int32_t>(),
                               .position = chosen.position.span<const std::int64_t>(),
                               .first_position = chosen.first_position.span<const std::int64_t>(),
                               .first_share = tensor_of(stream, {experts + 1}, first).span<const std::int32_t>(),
                               .share_begin = tensor_of(stream, {all}, begin).span<const std::int64_t>(),
                               .destination = tensor_of(stream, {all}, destination).span<const std::int32_t>(),
                               .y = y.matrix<std::int32_t>()});
  return y;
}

ExpertRoute with_spare_slots(ExpertRoute route, std::span<const ProcessGroup* const> groups, int slots) {
  require(!route.hops.empty(), "experts that are all on this rank have no replicas");
  int ranks = 1;
  for (const ProcessGroup* const group : groups) ranks *= group->size();
  int first = 0, block = ranks;  // ranks that tokens on this rank can still be sent to
  auto hop = route.hops.begin();
  for (const ProcessGroup* const group : groups) {
    const int part = block / group->size();
    if (group->size() > 1) {
      for (int rank = 0; rank < ranks; ++rank) {
        const bool behind = rank >= first && rank < first + block;
        hop->rank_of.insert(hop->rank_of.end(), static_cast<std::size_t>(slots), behind ? (rank - first) / part : -1);
      }
      ++hop;
    }
    first += group->rank() * part;
    block = part;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (int slot = 0; slot < slots; ++slot) {
      route.local_of.push_back(rank == first ? static_cast<std::int32_t>(route.local + slot) : -1);
    }
  }
  route.local += slots;
  return route;
}

std::vector<std::int64_t> rows_on_rank(const ReplicaProblem& problem, const ReplicaPlan& plan, int rank) {
  std::vector<std::int64_t> kept = problem.rows_of_all(), rows;
  for (std::size_t slot = 0; slot < plan.experts.size(); ++slot) {
    if (plan.experts[slot] >= 0) kept[static_cast<std::size_t>(plan.experts[slot])] -= plan.rows[slot];
  }
  for (const std::int32_t expert : problem.placement.experts_of(rank)) {
    rows.push_back(kept[static_cast<std::size_t>(expert)]);
  }
  const auto first = plan.rows.begin() + std::ptrdiff_t{rank} * problem.slots;
  rows.insert(rows.end(), first, first + problem.slots);
  return rows;
}

ExpertRoute with_planned_rows(ExpertRoute route, const ReplicaPlan& plan, std::int64_t tokens) {
  if (plan.replicas() == 0 || tokens == 0) return route;
  const std::size_t choices = route.local_of.size() - plan.experts.size();  // of the router
  // Fractions of all tokens that are on this rank before a hop: with the plan, and without it, see route_of().
  double reached = 1, reached_before = 1;
  for (Hop& hop : route.hops) {
    std::vector<double> rows, pairs;  // as fractions of all tokens
    for (std::size_t rank = 0; rank < hop.rows.size(); ++rank) {
      rows.push_back(hop.rows[rank] * reached_before);
      pairs.push_back(hop.pairs[rank] * reached_before);
    }
    for (std::size_t slot = 0; slot < plan.experts.size(); ++slot) {
      if (plan.experts[slot] < 0) continue;
      const double moved = static_cast<double>(plan.rows[slot]) / static_cast<double>(tokens);
      const std::int32_t from = hop.rank_of[static_cast<std::size_t>(plan.experts[slot])],
                         to = hop.rank_of[choices + slot];
      if (from == to) continue;
      if (from >= 0) pairs[static_cast<std::size_t>(from)] -= moved;
      if (to >= 0) {
        pairs[static_cast<std::size_t>(to)] += moved;
        rows[static_cast<std::size_t>(to)] += moved;
      }
    }
    const auto self = static_cast<std::size_t>(hop.group->rank());
    reached_before *= hop.rows[self];
    for (std::size_t rank = 0; rank < hop.rows.size(); ++rank) {
      hop.pairs[rank] = pairs[rank] / reached;
      hop.rows[rank] = std::clamp(std::min(rows[rank], pairs[rank]) / reached, 0.0, 1.0);
    }
    reached = std::max(reached * hop.rows[self], 1e-9);  // a divisor, also if replicas take all rows of a host
  }
  return route;
}

}  // namespace lyceum

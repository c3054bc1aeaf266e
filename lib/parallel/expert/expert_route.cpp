#include "parallel/expert/expert_route.h"

#include <algorithm>

#include "core/error.h"
#include "core/range.h"

namespace lyceum {

namespace {

/// Returns the experts of consecutive ranks; they are contiguous in Placement::order.
std::span<const std::int32_t> experts_of(const Placement& placement, const Range& ranks) {
  const auto first = static_cast<std::size_t>(ranks.first), end = static_cast<std::size_t>(ranks.first + ranks.count);
  return std::span(placement.order)
      .subspan(static_cast<std::size_t>(placement.first[first]),
               static_cast<std::size_t>(placement.first[end] - placement.first[first]));
}

}  // namespace

double share_of_tokens(std::span<const std::int32_t> experts, const ChoiceNumbers& numbers) {
  const bool limited = numbers.limit > 0;
  const std::size_t groups = limited ? static_cast<std::size_t>(numbers.groups->ranks()) : 1,
                    limit = limited ? static_cast<std::size_t>(numbers.limit) : 1;
  std::vector<std::size_t> held(groups);
  for (const std::int32_t e : experts) {
    ++held[limited ? static_cast<std::size_t>(numbers.groups->owner[static_cast<std::size_t>(e)]) : 0];
  }
  // ways[m][h]: the number of ways to choose m of the groups considered so far that contain h of the experts.
  std::vector<std::vector<double>> ways(limit + 1, std::vector<double>(experts.size() + 1));
  ways[0][0] = 1;
  for (const std::size_t own : held) {
    for (std::size_t m = limit; m > 0; --m) {
      for (std::size_t h = own; h <= experts.size(); ++h) ways[m][h] += ways[m - 1][h - own];
    }
  }
  const double open = static_cast<double>(numbers.choices) * static_cast<double>(limit) / static_cast<double>(groups);
  double all = 0, none = 0;
  for (std::size_t h = 0; h <= experts.size(); ++h) {
    double misses = ways[limit][h];
    all += misses;
    for (double j = 0; j < static_cast<double>(numbers.k); ++j) {
      misses *= std::max(0.0, open - static_cast<double>(h) - j) / (open - j);
    }
    none += misses;
  }
  return 1 - none / all;
}

ExpertRoute route_of(const Placement& placement, std::span<const ProcessGroup* const> groups,
                     const ChoiceNumbers& numbers) {
  const auto nowhere = [&] { return std::vector<std::int32_t>(static_cast<std::size_t>(numbers.choices), -1); };
  ExpertRoute route;
  Range block{0, placement.ranks()};  // ranks of the placement that the tokens on this rank can still be sent to
  double reached = 1;                 // fraction of the tokens that arrive at these ranks
  for (const ProcessGroup* group : groups) {
    require(block.count % group->size() == 0, "a placement over {} ranks cannot be divided by group {} of {} ranks",
            block.count, group->name(), group->size());
    if (group->size() == 1) continue;
    const std::int64_t part = block.count / group->size();
    Hop hop{.group = group, .rank_of = nowhere(), .rows = {}, .pairs = {}};
    for (int rank = 0; rank < group->size(); ++rank) {
      const std::span<const std::int32_t> behind = experts_of(placement, {block.first + rank * part, part});
      for (const std::int32_t expert : behind) hop.rank_of[static_cast<std::size_t>(expert)] = rank;
      hop.rows.push_back(share_of_tokens(behind, numbers) / reached);
      hop.pairs.push_back(static_cast<double>(numbers.k * std::ssize(behind)) / static_cast<double>(numbers.choices) /
                          reached);
    }
    reached *= hop.rows[static_cast<std::size_t>(group->rank())];
    block = {block.first + group->rank() * part, part};
    route.hops.push_back(std::move(hop));
  }
  require(block.count == 1, "a placement over {} ranks has more ranks than its groups", placement.ranks());
  route.local_of = nowhere();
  for (const std::int32_t expert : experts_of(placement, block)) {
    route.local_of[static_cast<std::size_t>(expert)] = static_cast<std::int32_t>(route.local++);
  }
  return route;
}

}  // namespace lyceum

#include "parallel/data/expert_transfers.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "core/random.h"
#include "parallel/data/flat_range.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {
namespace {

/// An element of an expert, or 0 if a rank has not received anything there.
using Element = std::int64_t;
Element element(std::int32_t expert, std::int64_t at) { return (std::int64_t{expert} + 1) * 1'000'000 + at; }

/// All ranks of a group, each with the elements of its unit that it has.
struct Group {
  Placement placement;
  ExpertMemory memory;
  std::vector<std::vector<Element>> units;  // [copies · ranks]: whole units, of which only held() is valid

  Range held(int rank) const {
    const auto size = std::ssize(units[static_cast<std::size_t>(rank)]);
    if (!memory.sharded) return {0, size};
    return cut_evenly(padded_for_ranks(size, memory.copies), memory.copies, rank / placement.ranks());
  }
};

std::vector<Element> unit_of(const Placement& placement, int rank, const ExpertMemory& memory) {
  std::vector<Element> unit;
  for (const std::int32_t expert : placement.experts_of(rank)) {
    for (std::int64_t i = 0; i < memory.elements[static_cast<std::size_t>(expert)]; ++i) {
      unit.push_back(element(expert, i));
    }
  }
  return unit;
}

/// Carries out the transfers of all ranks for a part of each expert. Returns the number of elements sent.
std::int64_t carry_out(Group& group, const Placement& after, const Range& part) {
  const auto ranks = static_cast<int>(group.units.size());
  std::map<std::pair<int, int>, std::vector<Element>> messages;  // by sender and receiver
  std::int64_t sent = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& [peer, range] : expert_transfers(group.placement, after, group.memory, rank, part).sent) {
      EXPECT_NE(peer, rank);
      EXPECT_EQ(common(range, group.held(rank)), range) << "a rank sends only what it has";
      std::vector<Element>& message = messages[{rank, peer}];
      const auto first = group.units[static_cast<std::size_t>(rank)].begin() + range.first;
      message.insert(message.end(), first, first + range.count);
      sent += range.count;
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    std::map<int, std::int64_t> taken;
    for (const auto& [peer, range] : expert_transfers(group.placement, after, group.memory, rank, part).received) {
      EXPECT_EQ(common(range, group.held(rank)), range) << "a rank receives only what it keeps";
      const std::vector<Element>& message = messages[{peer, rank}];
      const std::int64_t first = std::exchange(taken[peer], taken[peer] + range.count);
      EXPECT_LE(first + range.count, std::ssize(message));
      if (first + range.count > std::ssize(message)) return sent;
      std::copy_n(message.begin() + first, range.count,
                  group.units[static_cast<std::size_t>(rank)].begin() + range.first);
    }
    for (const auto& [peer, count] : taken) {
      EXPECT_EQ(count, std::ssize(messages[std::pair(peer, rank)])) << "all that is sent is received";
    }
  }
  return sent;
}

/// Expects that transfers in parts of `step` elements make the units of `after`, and that no element is sent twice.
void expect_moves(const Placement& before, const Placement& after, const ExpertMemory& memory, std::int64_t step) {
  Group group{before, memory, {}};
  for (int rank = 0; rank < memory.copies * before.ranks(); ++rank) {
    group.units.push_back(unit_of(before, rank % before.ranks(), memory));
    const Range held = group.held(rank);
    for (std::int64_t i = 0; i < std::ssize(group.units.back()); ++i) {
      if (i < held.first || i >= held.end()) group.units.back()[static_cast<std::size_t>(i)] = 0;
    }
  }
  std::int64_t largest = 0, sent = 0, needed = 0;
  for (const std::int64_t elements : memory.elements) largest = std::max(largest, elements);
  for (std::int64_t first = 0; first < largest; first += step) sent += carry_out(group, after, {first, step});
  for (const std::int32_t e : moved_experts(before, after)) needed += memory.elements[static_cast<std::size_t>(e)];
  EXPECT_EQ(sent, needed * (memory.sharded ? 1 : memory.copies));
  for (int rank = 0; rank < std::ssize(group.units); ++rank) {
    const std::vector<Element> expected = unit_of(after, rank % after.ranks(), memory);
    const Range held = group.held(rank);
    ASSERT_EQ(group.units[static_cast<std::size_t>(rank)].size(), expected.size());
    for (std::int64_t i = held.first; i < std::min(held.end(), std::ssize(expected)); ++i) {
      ASSERT_EQ(group.units[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)],
                expected[static_cast<std::size_t>(i)])
          << "rank " << rank << " element " << i;
    }
  }
}

TEST(ExpertTransfers, BringEveryElementToItsNewOwners) {
  const Philox random(3, "transfers");
  std::uint64_t draw = 0;
  for (const int ranks : {2, 3, 4}) {
    constexpr std::size_t experts = 14;
    std::vector<std::int64_t> elements;
    std::vector<int> kinds;
    std::vector<double> costs;
    for (std::size_t e = 0; e < experts; ++e) {
      kinds.push_back(static_cast<int>(random.below(2, draw++)));
      elements.push_back(kinds.back() ? 1760 : 640);
      costs.push_back(static_cast<double>(random.below(1000, draw++)));
    }
    const Placement before = Placement::contiguous(experts, ranks), after = rebalanced(before, costs, kinds);
    ASSERT_FALSE(moved_experts(before, after).empty());
    for (const int copies : {1, 2, 3}) {
      for (const bool sharded : {false, true}) {
        const ExpertMemory memory{.elements = elements, .copies = copies, .sharded = sharded};
        for (const std::int64_t step : {100, 700, 5000}) expect_moves(before, after, memory, step);
        expect_moves(after, before, memory, 5000);
        expect_moves(before, before, memory, 5000);
      }
    }
  }
}

}  // namespace
}  // namespace lyceum

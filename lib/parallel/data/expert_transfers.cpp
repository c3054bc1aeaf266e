#include "parallel/data/expert_transfers.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "parallel/data/flat_range.h"
#include "parallel/expert/rebalance.h"

namespace lyceum {

namespace {

/// The slots of one expert rank in its unit.
class Unit {
 public:
  Unit(const Placement& placement, int rank, const ExpertMemory& memory)
      : memory_(memory), offsets_(slot_offsets(placement, rank, memory.elements)) {
    const std::span<const std::int32_t> experts = placement.experts_of(rank);
    for (std::size_t slot = 0; slot < experts.size(); ++slot) first_[experts[slot]] = offsets_[slot];
  }
  /// Returns the first element of an expert.
  std::int64_t first(std::int32_t expert) const { return first_.at(expert); }
  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  /// Returns the elements that a copy has.
  Range held(int copy) const {
    const std::int64_t size = offsets_.back();
    if (!memory_.sharded) return {0, size};
    return cut_evenly(padded_for_ranks(size, memory_.copies), memory_.copies, copy);
  }

 private:
  const ExpertMemory& memory_;
  std::vector<std::int64_t> offsets_;
  std::map<std::int32_t, std::int64_t> first_;
};

}  // namespace

std::vector<std::int64_t> slot_offsets(const Placement& placement, int rank, std::span<const std::int64_t> elements) {
  std::vector<std::int64_t> offsets{0};
  for (const std::int32_t expert : placement.experts_of(rank)) {
    offsets.push_back(offsets.back() + elements[static_cast<std::size_t>(expert)]);
  }
  return offsets;
}

ExpertTransfers expert_transfers(const Placement& before, const Placement& after, const ExpertMemory& memory, int rank,
                                 const Range& part) {
  const int ranks = before.ranks(), own = rank % ranks, copy = rank / ranks;
  require(after.ranks() == ranks && after.experts() == before.experts() && copy < memory.copies,
          "experts on {} ranks with {} copies cannot move to {} ranks", ranks, memory.copies, after.ranks());
  std::map<int, Unit> left, entered;  // by expert rank: the units before and after
  const auto unit = [&](std::map<int, Unit>& units, const Placement& placement, int of) -> const Unit& {
    return units.try_emplace(of, placement, of, memory).first->second;
  };
  // Appends the transfers of one expert between this rank, whose elements begin at `first`, and the copies of another.
  const auto append = [&](std::vector<ExpertTransfer>& to, const Unit& here, const Unit& there, int other,
                          std::int32_t expert) {
    const std::int64_t slot = here.first(expert), shift = there.first(expert) - slot;
    const std::int64_t size = memory.elements[static_cast<std::size_t>(expert)];
    const Range wanted = common({slot + part.first, part.count}, {slot, size}), mine = common(wanted, here.held(copy));
    for (int peer = 0; peer < memory.copies; ++peer) {
      if (!memory.sharded && peer != copy) continue;
      Range theirs = there.held(peer);
      theirs.first -= shift;
      const Range both = common(mine, theirs);
      if (both.count > 0) to.push_back({.peer = peer * ranks + other, .range = both});
    }
  };
  ExpertTransfers transfers;
  for (const std::int32_t expert : moved_experts(before, after)) {
    const int from = before.owner[static_cast<std::size_t>(expert)], to = after.owner[static_cast<std::size_t>(expert)];
    if (from != own && to != own) continue;
    const Unit &source = unit(left, before, from), &target = unit(entered, after, to);
    if (from == own) append(transfers.sent, source, target, to, expert);
    if (to == own) append(transfers.received, target, source, from, expert);
  }
  std::ranges::stable_sort(transfers.sent, {}, &ExpertTransfer::peer);
  std::ranges::stable_sort(transfers.received, {}, &ExpertTransfer::peer);
  return transfers;
}

}  // namespace lyceum

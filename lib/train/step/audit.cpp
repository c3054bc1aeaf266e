#include "train/step/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "core/copy.h"
#include "kernels/digest.h"
#include "optim/tensor_digest.h"
#include "parallel/comm/verdict.h"

namespace lyceum {

namespace {

std::uint64_t digest_of_digests(std::span<const std::uint64_t> digests) {
  return digest_of_bytes(digests.data(), digests.size_bytes());
}

/// The digests of blocks, over all ranks, that are gathered at a time: 64 MiB.
constexpr std::size_t max_gathered_digests = 8 << 20;

/// Collective. Returns the numbers of all ranks, rank after rank. Every rank passes equally many.
std::vector<std::uint64_t> gather_all(const ProcessGroup& group, std::span<const std::uint64_t> own) {
  std::vector<std::int64_t> sent(own.begin(), own.end()), all(sent.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const std::int64_t>(sent), std::span(all));
  return {all.begin(), all.end()};
}

/// Returns the index of the first number that differs between ranks, or `count` if none does. `all` [ranks, count].
std::size_t first_difference(std::span<const std::uint64_t> all, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t at = i; at < all.size(); at += count) {
      if (all[at] != all[i]) return i;
    }
  }
  return count;
}

/// Describes which ranks differ from the majority in number `i` of `all` [ranks, count]: "rank 3 holds a different copy
/// than ranks 0-2", or "ranks 0-1 hold different copies" without a majority. Ranks are those of the world.
std::string describe_odd_ranks(const ProcessGroup& group, std::span<const std::uint64_t> all, std::size_t count,
                               std::size_t i) {
  std::map<std::uint64_t, std::vector<int>> holders;
  for (int rank = 0; rank < group.size(); ++rank) {
    holders[all[static_cast<std::size_t>(rank) * count + i]].push_back(group.members()[static_cast<std::size_t>(rank)]);
  }
  const auto most = std::ranges::max_element(holders, {}, [](const auto& held) { return held.second.size(); });
  const auto also =
      std::ranges::count_if(holders, [&](const auto& held) { return held.second.size() == most->second.size(); });
  if (also > 1) return fmt::format("ranks {} hold different copies", rank_ranges(group.members()));
  std::vector<int> odd;
  for (const auto& [digest, ranks] : holders) {
    if (digest != most->first) odd.insert(odd.end(), ranks.begin(), ranks.end());
  }
  std::ranges::sort(odd);
  return fmt::format("rank{} {} hold{} a different copy than ranks {}", odd.size() > 1 ? "s" : "", rank_ranges(odd),
                     odd.size() > 1 ? "" : "s", rank_ranges(most->second));
}

}  // namespace

void require_equal_copies(const Stream& stream, const ProcessGroup& group, std::span<const ParameterUnit* const> units,
                          std::int64_t last) {
  if (group.size() == 1 || units.empty()) return;
  std::vector<std::uint64_t> digests;
  for (const ParameterUnit* unit : units) digests.push_back(digest_of(stream, unit->values()));
  const std::size_t which = first_difference(gather_all(group, digests), digests.size());
  if (which == digests.size()) return;
  const ParameterUnit& unit = *units[which];
  const std::vector<std::uint64_t> own = block_digests(stream, unit.values());
  const std::size_t at_once = std::max<std::size_t>(1, max_gathered_digests / static_cast<std::size_t>(group.size()));
  for (std::size_t first = 0; first < own.size(); first += at_once) {
    const auto part = std::span(own).subspan(first, std::min(at_once, own.size() - first));
    const std::vector<std::uint64_t> all = gather_all(group, part);
    const std::size_t block = first_difference(all, part.size());
    if (block == part.size()) continue;
    const Range range{static_cast<std::int64_t>(first + block) * flat_block, flat_block};
    fail(ExitCode::failed, "{} of {}: possible memory, network or processor fault; {}",
         describe_odd_ranks(group, all, part.size(), block), describe_range(unit, common(range, {0, unit.size()})),
         advice_on_old_faults(last));
  }
  fail(ExitCode::failed, "copies of {} differed, but are equal when read again", unit.name());
}

std::string advice_on_old_faults(std::int64_t step) {
  return fmt::format(
      "steps after {} may be affected: resume from a checkpoint of that step or before (checkpoint.resume = PATH), "
      "without that machine if it happens again",
      step);
}

void GradientDigests::add(Finding gradient, std::uint64_t digest) { entries_.push_back({std::move(gradient), digest}); }

Finding GradientDigests::difference(const GradientDigests& other) const {
  require(entries_.size() == other.entries_.size(), "a step computed {} gradients, and {} when it was repeated",
          entries_.size(), other.entries_.size());
  Finding most;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].digest != other.entries_[i].digest) most.add(entries_[i].gradient);
  }
  return most;
}

std::vector<std::uint64_t> GradientDigests::without_sums() const {
  std::vector<std::uint64_t> digests;
  for (const Entry& entry : entries_) {
    if (entry.gradient.kind != Finding::Kind::sum) digests.push_back(entry.digest);
  }
  return digests;
}

Finding GradientDigests::difference(const ProcessGroup& group, int shift, const GradientDigests& of_other) const {
  const std::vector<std::uint64_t> own = without_sums(), again = of_other.without_sums();
  const std::vector<std::uint64_t> all =
      gather_all(group, std::array{digest_of_digests(own), digest_of_digests(again)});
  const auto other = [&](int rank) { return (rank + shift) % group.size(); };
  bool same = true;
  for (int rank = 0; rank < group.size(); ++rank) {
    same = same && all[2 * static_cast<std::size_t>(other(rank))] == all[2 * static_cast<std::size_t>(rank) + 1];
  }
  if (same) return {};
  const std::vector<std::string> texts =
      group.all_gather(std::string(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(std::uint64_t)));
  const std::string& theirs = texts[static_cast<std::size_t>(other(group.rank()))];
  require(theirs.size() == again.size() * sizeof(std::uint64_t),
          "ranks {} and {} of group {} have different parameters", group.rank(), other(group.rank()), group.name());
  std::vector<std::uint64_t> expected(again.size());
  std::memcpy(expected.data(), theirs.data(), theirs.size());
  Finding most;
  std::size_t next = 0;
  for (const Entry& entry : of_other.entries_) {
    if (entry.gradient.kind == Finding::Kind::sum) continue;
    if (entry.digest != expected[next++]) most.add(entry.gradient);
  }
  return most;
}

}  // namespace lyceum

#include "parallel/comm/sequences.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/verdict.h"

namespace lyceum {
namespace {

/// A sequence that must be the same on all participants: the collective operations of a group, or the messages from one
/// rank to another in a group.
using Channel = std::tuple<std::uint64_t, std::int32_t, std::int32_t>;

Channel channel_of(const LedgerEntry& entry) { return {entry.group, entry.from, entry.to}; }

/// A summary of one rank's operations in a channel.
struct Part {
  std::uint64_t group;
  std::int32_t from, to, rank, participants;
  std::int64_t count;
  std::uint64_t digest;
  bool first;  // the rank is the first participant: the sender of messages, or rank 0 of the group
};

template <class T>
std::string packed(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::vector<T> values_of(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// Returns a summary for each channel, in the order of the channels' first operations.
std::vector<Part> own_parts(std::span<const LedgerEntry> own, int rank) {
  std::vector<Part> parts;
  std::map<Channel, std::size_t> index;
  for (const LedgerEntry& entry : own) {
    const auto [found, added] = index.try_emplace(channel_of(entry), parts.size());
    if (added) {
      parts.push_back({.group = entry.group,
                       .from = entry.from,
                       .to = entry.to,
                       .rank = rank,
                       .participants = entry.message() ? 2 : entry.members,
                       .count = 0,
                       .digest = 0,
                       .first = entry.message() ? entry.from == rank : entry.group_rank == 0});
    }
    Part& part = parts[found->second];
    ++part.count;
    part.digest = mixed(part.digest, static_cast<std::uint64_t>(entry.size));
    if (!entry.message()) part.digest = mixed(part.digest, std::string_view(entry.operation.data()));
  }
  return parts;
}

/// Collective. True if the participants of every channel have equal summaries. Uses a sum with one number per rank: of
/// the n participants of a channel, the first contributes −(n − 1) times its digest, each of the others its digest
/// once. Equal digests cancel; different ones do with a probability of about 2^-48.
bool all_agree(const ProcessGroup& world, const std::vector<Part>& own) {
  constexpr std::uint64_t modulus = std::uint64_t{1} << 48;  // sums of up to 2^15 ranks fit
  std::uint64_t sum = 0;
  for (const Part& part : own) {
    std::uint64_t digest = mixed(part.group, static_cast<std::uint64_t>(part.from));
    for (const auto number : {std::int64_t{part.to}, std::int64_t{part.participants}, part.count}) {
      digest = mixed(digest, static_cast<std::uint64_t>(number));
    }
    digest = mixed(digest, part.digest) | 1;
    sum += part.first ? digest * (1 - static_cast<std::uint64_t>(part.participants)) : digest;
  }
  std::int64_t of_all = static_cast<std::int64_t>(sum % modulus);
  world.all_reduce(std::span(&of_all, 1));
  return static_cast<std::uint64_t>(of_all) % modulus == 0;
}

/// Returns the summaries of the first channel in which they differ or a participant is missing; empty if there is none.
std::vector<Part> first_mismatch(const std::vector<Part>& all) {
  std::map<Channel, std::vector<Part>> channels;
  for (const Part& part : all) channels[{part.group, part.from, part.to}].push_back(part);
  for (const Part& first : all) {
    const std::vector<Part>& parts = channels.at({first.group, first.from, first.to});
    const bool same = std::ranges::all_of(parts, [&](const Part& part) {
      return part.count == first.count && part.digest == first.digest && part.participants == first.participants;
    });
    if (!same || std::ssize(parts) != first.participants) return parts;
  }
  return {};
}

/// Describes the operation at an index of a channel's sequence.
std::string entry_text(const std::vector<LedgerEntry>& entries, std::size_t index) {
  return index < entries.size() ? entries[index].text() : "nothing more";
}

/// Describes the first operation in which two ranks differ in a channel.
std::string difference(const std::vector<LedgerEntry>& a, const std::vector<LedgerEntry>& b, int rank_a, int rank_b) {
  std::size_t index = 0;
  while (index < a.size() && index < b.size() && a[index].fits(b[index]) && a[index].members == b[index].members) {
    ++index;
  }
  return format_message("ranks {} and {} would diverge: rank {} calls {}, where rank {} calls {}",
                        {rank_a, rank_b, rank_a, entry_text(a, index), rank_b, entry_text(b, index)});
}

}  // namespace

void require_matching(const ProcessGroup& world, std::span<const LedgerEntry> own) {
  const std::vector<Part> of_this_rank = own_parts(own, world.rank());
  if (all_agree(world, of_this_rank)) return;
  std::vector<Part> all;
  for (const std::string& packed_parts : world.all_gather(packed(of_this_rank))) {
    const std::vector<Part> parts = values_of<Part>(packed_parts);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  const std::vector<Part> parts = first_mismatch(all);
  if (parts.empty()) return;

  const Part& first = parts.front();
  const Channel channel{first.group, first.from, first.to};
  const auto entries_of = [&](int rank) {
    std::vector<LedgerEntry> entries;
    std::ranges::copy_if(own, std::back_inserter(entries),
                         [&](const auto& entry) { return channel_of(entry) == channel; });
    return values_of<LedgerEntry>(world.broadcast(rank == world.rank() ? packed(entries) : "", rank));
  };
  const auto other = std::ranges::find_if(
      parts, [&](const Part& part) { return part.count != first.count || part.digest != first.digest; });
  const std::vector<LedgerEntry> entries = entries_of(first.rank);
  std::string reason;
  if (other != parts.end()) {
    reason = difference(entries, entries_of(other->rank), first.rank, other->rank);
  } else {
    std::vector<int> ranks;
    for (const Part& part : parts) ranks.push_back(part.rank);
    reason = format_message("rank {} calls {}, but of its {} ranks only {} would take part",
                            {first.rank, entry_text(entries, 0), first.participants, rank_ranges(ranks)});
  }
  fail(ExitCode::failed, "{}: nothing was started; start every rank with the same program", reason);
}

}  // namespace lyceum

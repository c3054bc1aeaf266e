#include "parallel/comm/all_gather.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/range.h"
#include "parallel/comm/tree.h"

namespace lyceum {
namespace {

/// Calls f(range) for each of the at most two ranges of adjacent, not empty parts among `count` parts from that of rank
/// `first` on, modulo the number of ranks. `begin` [ranks + 1]: where each part begins.
template <class F>
void for_ranges(std::span<const std::int64_t> begin, int first, int count, F&& f) {
  const auto ranks = static_cast<int>(begin.size()) - 1;
  const int end = std::min(first + count, ranks);
  for (const auto& [from, to] : {std::pair(first, end), std::pair(0, first + count - end)}) {
    const std::int64_t at = begin[static_cast<std::size_t>(from)], size = begin[static_cast<std::size_t>(to)] - at;
    if (size > 0) f(Range{at, size});
  }
}

}  // namespace

AllGather::AllGather(std::shared_ptr<Communicator> of, const Operation& operation, const Parts& parts, int tag)
    : Messages(std::move(of), operation), all_(parts.all), begin_{0}, tag_(tag) {
  for (int rank = 0; rank < communicator().size(); ++rank) begin_.push_back(begin_.back() + parts.bytes(rank));
  std::byte* const own = parts.begin(communicator().rank());
  if (parts.own.size() && own != parts.own.raw()) std::memcpy(own, parts.own.raw(), parts.own.bytes());
  start_round();
}

void AllGather::start_round() {
  const int ranks = communicator().size(), self = communicator().rank();
  const int count = std::min(held_, ranks - held_), from = (self + held_) % ranks, to = (self + ranks - held_) % ranks;
  auto* const all = static_cast<std::byte*>(all_.raw());
  for_ranges(begin_, from, count, [&](const Range& range) { receive(all + range.first, range.count, from, tag_); });
  for_ranges(begin_, self, count, [&](const Range& range) { send(all + range.first, range.count, to, tag_); });
}

bool AllGather::next() {
  held_ += std::min(held_, communicator().size() - held_);
  if (held_ == communicator().size()) return false;
  start_round();
  return true;
}

std::int64_t messages_of_all_gather(int rank, std::span<const std::int64_t> extents) {
  const auto ranks = static_cast<int>(extents.size());
  if (!large_group(ranks)) return extents[static_cast<std::size_t>(rank)] > 0 ? ranks - 1 : 0;
  std::vector<std::int64_t> begin{0};
  for (const std::int64_t extent : extents) begin.push_back(begin.back() + extent);
  std::int64_t messages = 0;
  for (int held = 1; held < ranks; held += std::min(held, ranks - held)) {
    for_ranges(begin, rank, std::min(held, ranks - held), [&](const Range&) { ++messages; });
  }
  return messages;
}

}  // namespace lyceum

#include "parallel/expert/replica_exchange.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/copy.h"
#include "kernels/elementwise.h"

namespace lyceum {

namespace {

std::int64_t bytes_of(const Tensor& type_of, std::int64_t elements) {
  return elements * static_cast<std::int64_t>(size_of(type_of.dtype()));
}

}  // namespace

ReplicaExchange::ReplicaExchange(const ProcessGroup& group, const Limits& limits, std::int64_t bytes_per_round)
    : group_(&group), limits_(limits), round_bytes_(bytes_per_round) {
  require(limits.elements % row == 0, "a replica of {} elements is not a number of rows of {}", limits.elements, row);
}

std::int64_t ReplicaExchange::rounds(const Work& work) const {
  return (limits_.elements + work.chunk - 1) / work.chunk;
}

void ReplicaExchange::start(const Stream& stream, std::vector<ReplicaLink> links, Direction direction,
                            const Tensor& from) {
  require(!work_, "replicas are sent while others are in flight");
  const std::int64_t most = std::max(limits_.held, limits_.lent) * bytes_of(from, row),
                     rows = std::max<std::int64_t>(1, round_bytes_ / most), all = limits_.elements / row,
                     count = (all + rows - 1) / rows;
  work_.emplace(Work{.links = std::move(links),
                     .direction = direction,
                     .from = from,
                     .chunk = (all + count - 1) / count * row,
                     .started = 0,
                     .sent = {},
                     .received = {},
                     .pending = {}});
  // Buffers have the same size whatever is sent, so that a plan knows their memory.
  const bool out = direction == Direction::to_replicas;
  work_->sent = Tensor::empty(stream, from.dtype(), {(out ? limits_.lent : limits_.held) * work_->chunk});
  work_->received = Tensor::empty(stream, from.dtype(), {(out ? limits_.held : limits_.lent) * work_->chunk});
  start_round(stream);
}

std::vector<ReplicaExchange::Part> ReplicaExchange::parts_of(const Work& work, std::int64_t round, bool sends,
                                                             std::vector<std::int64_t>& rows) const {
  const bool at_owner = (work.direction == Direction::to_replicas) == sends;
  std::vector<const ReplicaLink*> mine;
  for (const ReplicaLink& link : work.links) {
    if ((at_owner ? link.owner : link.holder) == group_->rank()) mine.push_back(&link);
  }
  const auto peer = [&](const ReplicaLink* link) { return at_owner ? link->holder : link->owner; };
  std::ranges::stable_sort(mine, {}, peer);
  rows.assign(static_cast<std::size_t>(group_->size()), 0);
  std::vector<Part> parts;
  for (const ReplicaLink* const link : mine) {
    const std::int64_t first = round * work.chunk,
                       count = std::clamp<std::int64_t>(link->elements - first, 0, work.chunk);
    parts.push_back({(at_owner ? link->original : link->replica) + first, count});
    rows[static_cast<std::size_t>(peer(link))] += count / row;
  }
  std::erase_if(parts, [](const Part& part) { return part.count == 0; });
  return parts;
}

void ReplicaExchange::start_round(const Stream& stream) {
  Work& work = *work_;
  std::vector<std::int64_t> send_rows, receive_rows;
  std::int64_t at = 0;
  for (const Part& part : parts_of(work, work.started, true, send_rows)) {
    copy_on_device(stream, work.sent.view(at, {part.count}).raw(), work.from.view(part.first, {part.count}).raw(),
                   static_cast<std::size_t>(bytes_of(work.from, part.count)));
    at += part.count;
  }
  parts_of(work, work.started, false, receive_rows);
  bytes_sent_ += bytes_of(work.from, at);
  const ProfileScope timed(profile_of(stream), "replicas");
  work.pending =
      group_->all_to_all_async({.sent = work.sent.raw(),
                                .send_rows = send_rows,
                                .received = work.received.raw(),
                                .receive_rows = receive_rows,
                                .row_bytes = bytes_of(work.from, row),
                                .owner = std::make_shared<std::pair<Tensor, Tensor>>(work.sent, work.received)});
  ++work.started;
}

void ReplicaExchange::finish(const Stream& stream, const Tensor& to) {
  require(work_.has_value(), "no replicas are in flight");
  Work& work = *work_;
  for (;;) {
    {
      const ProfileScope timed(profile_of(stream), "replicas");
      work.pending.wait();
    }
    std::vector<std::int64_t> rows;
    std::int64_t at = 0;
    for (const Part& part : parts_of(work, work.started - 1, false, rows)) {
      const Tensor received = work.received.view(at, {part.count}), wanted = to.view(part.first, {part.count});
      at += part.count;
      if (work.direction == Direction::to_replicas) {
        copy_on_device(stream, wanted.raw(), received.raw(), static_cast<std::size_t>(bytes_of(received, part.count)));
        continue;
      }
      dispatch_accumulator(to.dtype(), [&]<class A>() {
        launch(stream, AddScaled<A, A>{.x = received.span<A>(), .factor = 1, .y = wanted.span<A>()});
      });
    }
    if (work.started == rounds(work)) break;
    start_round(stream);
  }
  work_.reset();
}

}  // namespace lyceum

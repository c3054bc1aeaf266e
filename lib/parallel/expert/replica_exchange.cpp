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

std::vector<ReplicaExchange::Part> ReplicaExchange::next_round(Work& work) const {
  const bool out = work.direction == Direction::to_replicas;
  std::vector<std::int64_t> to_send(static_cast<std::size_t>(group_->size()), work.room), to_receive = to_send;
  std::vector<Part> parts;
  for (std::size_t i = 0; i < work.links.size(); ++i) {
    const ReplicaLink& link = work.links[i];
    std::int64_t& sender = to_send[static_cast<std::size_t>(out ? link.owner : link.holder)];
    std::int64_t& receiver = to_receive[static_cast<std::size_t>(out ? link.holder : link.owner)];
    const std::int64_t count = std::min({link.elements - work.done[i], sender, receiver});
    if (count == 0) continue;
    parts.push_back({i, work.done[i], count});
    work.done[i] += count;
    sender -= count;
    receiver -= count;
  }
  return parts;
}

void ReplicaExchange::start(const Stream& stream, std::vector<ReplicaLink> links, Direction direction,
                            const Tensor& from) {
  require(!work_, "replicas are sent while others are in flight");
  const std::int64_t rows = std::max<std::int64_t>(1, round_bytes_ / bytes_of(from, row));
  const std::size_t count = links.size();
  work_.emplace(Work{.links = std::move(links),
                     .direction = direction,
                     .from = from,
                     .room = rows * row,
                     .done = std::vector<std::int64_t>(count),
                     .round = {},
                     .sent = {},
                     .received = {},
                     .pending = {}});
  // Buffers have the same size whatever is sent, so that a plan knows their memory.
  const std::int64_t lent = std::min(limits_.lent * limits_.elements, work_->room),
                     held = std::min(limits_.held * limits_.elements, work_->room);
  const bool out = direction == Direction::to_replicas;
  work_->sent = Tensor::empty(stream, from.dtype(), {out ? lent : held});
  work_->received = Tensor::empty(stream, from.dtype(), {out ? held : lent});
  work_->round = next_round(*work_);
  start_round(stream);
}

std::vector<Range> ReplicaExchange::own_parts(const Work& work, bool sends, std::vector<std::int64_t>& rows) const {
  const bool at_owner = (work.direction == Direction::to_replicas) == sends;
  const auto peer = [&](const Part& part) {
    return at_owner ? work.links[part.link].holder : work.links[part.link].owner;
  };
  std::vector<Part> mine;
  for (const Part& part : work.round) {
    const ReplicaLink& link = work.links[part.link];
    if ((at_owner ? link.owner : link.holder) == group_->rank()) mine.push_back(part);
  }
  std::ranges::stable_sort(mine, {}, peer);
  rows.assign(static_cast<std::size_t>(group_->size()), 0);
  std::vector<Range> memory;
  for (const Part& part : mine) {
    const ReplicaLink& link = work.links[part.link];
    memory.push_back({(at_owner ? link.original : link.replica) + part.first, part.count});
    rows[static_cast<std::size_t>(peer(part))] += part.count / row;
  }
  return memory;
}

void ReplicaExchange::start_round(const Stream& stream) {
  Work& work = *work_;
  std::vector<std::int64_t> send_rows, receive_rows;
  std::int64_t at = 0;
  for (const Range& part : own_parts(work, true, send_rows)) {
    copy_on_device(stream, work.sent.view(at, {part.count}).raw(), work.from.view(part.first, {part.count}).raw(),
                   static_cast<std::size_t>(bytes_of(work.from, part.count)));
    at += part.count;
  }
  own_parts(work, false, receive_rows);
  bytes_sent_ += bytes_of(work.from, at);
  const ProfileScope timed(profile_of(stream), "replicas");
  work.pending =
      group_->all_to_all_async({.sent = work.sent.raw(),
                                .send_rows = send_rows,
                                .received = work.received.raw(),
                                .receive_rows = receive_rows,
                                .row_bytes = bytes_of(work.from, row),
                                .owner = std::make_shared<std::pair<Tensor, Tensor>>(work.sent, work.received)});
}

/// Copies or adds what the round in flight, which has ended, has brought to this rank.
void ReplicaExchange::take(const Stream& stream, const Tensor& to) const {
  std::vector<std::int64_t> rows;
  std::int64_t at = 0;
  for (const Range& part : own_parts(*work_, false, rows)) {
    const Tensor received = work_->received.view(at, {part.count}), wanted = to.view(part.first, {part.count});
    at += part.count;
    if (work_->direction == Direction::to_replicas) {
      copy_on_device(stream, wanted.raw(), received.raw(), static_cast<std::size_t>(bytes_of(received, part.count)));
      continue;
    }
    dispatch_accumulator(to.dtype(), [&]<class A>() {
      launch(stream, AddScaled<A, A>{.x = received.span<A>(), .factor = 1, .y = wanted.span<A>()});
    });
  }
}

void ReplicaExchange::finish(const Stream& stream, const Tensor& to) {
  require(work_.has_value(), "no replicas are in flight");
  for (;;) {
    {
      const ProfileScope timed(profile_of(stream), "replicas");
      work_->pending.wait();
    }
    take(stream, to);
    work_->round = next_round(*work_);
    if (work_->round.empty()) break;
    start_round(stream);
  }
  work_.reset();
}

}  // namespace lyceum

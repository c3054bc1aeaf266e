#include <algorithm>
#include <climits>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "parallel/comm/all_reduce.h"
#include "parallel/comm/chunks.h"
#include "parallel/comm/group_implementation.h"
#include "parallel/comm/tree.h"

// The operations of a group on host memory. They use MPI, whatever the transport of the group's tensors.
namespace lyceum {

void ProcessGroup::barrier(Where where) const {
  if (size() == 1) return;
  std::int64_t nothing = 0;
  auto state = implementation_->start({.name = "barrier", .bytes = 0, .size = 0, .where = where}, nothing);
  if (!state) return;
  state->check(MPI_Ibarrier(implementation_->communicator->handle(), state->request()));
  Pending(std::move(state)).wait();
}

namespace {

/// Blocking all-reduce of a span.
template <class T>
void reduce(ProcessGroup::Implementation& group, std::span<T> values, Reduction reduction, Where where) {
  const std::shared_ptr<Communicator>& communicator = group.communicator;
  if (communicator->alone() || values.empty()) return;
  const std::int64_t bytes = std::ssize(values) * std::int64_t{sizeof(T)};
  const Operation operation{.name = "all_reduce", .bytes = bytes, .size = bytes, .where = where};
  if (!group.enter(operation, group.traffic.all_reduce)) {
    return group.rehearse_messages([&] {
      return messages_of_all_reduce(communicator->rank(), communicator->size(), std::ssize(values), dtype_of<T>);
    });
  }
  Pending(start_all_reduce(communicator, operation, {values.data(), std::ssize(values), dtype_of<T>}, reduction))
      .wait();
}

}  // namespace

void ProcessGroup::all_reduce(std::span<float> values, Reduction reduction, Where where) const {
  reduce(*implementation_, values, reduction, where);
}

void ProcessGroup::all_reduce(std::span<double> values, Reduction reduction, Where where) const {
  reduce(*implementation_, values, reduction, where);
}

void ProcessGroup::all_reduce(std::span<std::int64_t> values, Reduction reduction, Where where) const {
  reduce(*implementation_, values, reduction, where);
}

void ProcessGroup::broadcast(std::span<std::byte> bytes, int root, Where where) const {
  const Communicator& communicator = *implementation_->communicator;
  require(root >= 0 && root < size(), "broadcast on group {}: root {} is not one of its {} ranks", name(), root,
          size());
  if (communicator.alone() || bytes.empty()) return;
  std::int64_t nothing = 0;
  auto state = implementation_->start(
      {.name = "broadcast", .bytes = std::ssize(bytes), .size = std::ssize(bytes), .where = where},
      rank() == root ? implementation_->traffic.broadcast : nothing);
  if (!state) return;
  for_chunks(std::ssize(bytes), [&](std::int64_t first, int count) {
    state->check(MPI_Ibcast(bytes.data() + first, count, MPI_BYTE, root, communicator.handle(), state->request()));
  });
  Pending(std::move(state)).wait();
}

std::string ProcessGroup::broadcast(std::string text, int root, Where where) const {
  std::int64_t length = std::ssize(text);
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root, where);
  text.resize(static_cast<std::size_t>(length));
  broadcast(std::as_writable_bytes(std::span(text)), root, where);
  return text;
}

void ProcessGroup::all_gather(std::span<const std::int64_t> sent, std::span<std::int64_t> received, Where where) const {
  all_gather_bytes(std::as_bytes(sent), std::as_writable_bytes(received), where);
}

void ProcessGroup::all_gather(std::span<const std::int32_t> sent, std::span<std::int32_t> received, Where where) const {
  all_gather_bytes(std::as_bytes(sent), std::as_writable_bytes(received), where);
}

void ProcessGroup::all_gather_bytes(std::span<const std::byte> sent, std::span<std::byte> received, Where where) const {
  require(received.size() == sent.size() * static_cast<std::size_t>(size()),
          "all_gather on group {}: {} B of each of {} ranks do not fill {} B", name(), sent.size(), size(),
          received.size());
  require(received.size() <= INT_MAX, "all_gather on group {}: {} B in total exceed 2 GB", name(), received.size());
  if (sent.empty()) return;
  if (size() == 1 || implementation_->communicator->rehearses()) {
    for (std::size_t i = 0; i < received.size(); i += sent.size()) {
      std::ranges::copy(sent, received.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (size() == 1) return;
  const std::shared_ptr<Communicator>& communicator = implementation_->communicator;
  const auto bytes = static_cast<int>(sent.size());
  const Operation operation{.name = "all_gather", .bytes = bytes, .size = std::int64_t{bytes} * size(), .where = where};
  const bool tree = large_group(communicator->size());
  if (!implementation_->enter(operation, implementation_->traffic.all_gather)) {
    return implementation_->rehearse_messages([&] { return tree ? messages_of_tree(rank(), size()) : 0; });
  }
  if (tree) {
    const auto keep = [received](std::span<const std::byte> all) { std::ranges::copy(all, received.begin()); };
    return Pending(std::make_unique<TreeExchange>(communicator, operation, sent, received, keep)).wait();
  }
  auto state = std::make_unique<Messages>(communicator, operation);
  state->check(MPI_Iallgather(sent.data(), bytes, MPI_BYTE, received.data(), bytes, MPI_BYTE, communicator->handle(),
                              state->request()));
  Pending(std::move(state)).wait();
}

namespace {

/// Returns the texts of all ranks on `root`. In a rehearsal, each rank's text is that of this rank.
JoinedTexts gathered(ProcessGroup::Implementation& group, const std::string& text, int root, Where where) {
  const std::shared_ptr<Communicator>& communicator = group.communicator;
  const auto texts = std::make_shared<JoinedTexts>();
  if (communicator->alone() || communicator->rehearses()) {
    for (int rank = 0; rank < communicator->size(); ++rank) texts->bytes += text;
    texts->lengths.assign(communicator->members().size(), std::ssize(text));
  }
  if (communicator->alone()) return *texts;
  const Operation operation{.name = "gather", .bytes = std::ssize(text), .size = 0, .where = where};
  if (!group.enter(operation, group.traffic.all_gather)) {
    group.rehearse_messages([&] { return communicator->rank() == root ? 0 : TextGather::messages; });
    return *texts;
  }
  Pending(std::make_unique<TextGather>(communicator, operation, text, root, texts)).wait();
  return std::move(*texts);
}

}  // namespace

std::vector<std::string> ProcessGroup::all_gather(const std::string& text, Where where) const {
  JoinedTexts texts = gathered(*implementation_, text, 0, where);
  texts.lengths.resize(static_cast<std::size_t>(size()));
  broadcast(std::as_writable_bytes(std::span(texts.lengths)), 0, where);
  texts.bytes.resize(static_cast<std::size_t>(total(texts.lengths)));
  broadcast(std::as_writable_bytes(std::span(texts.bytes)), 0, where);
  return texts.split();
}

std::vector<std::string> ProcessGroup::gather(const std::string& text, int root, Where where) const {
  require(root >= 0 && root < size(), "gather on group {}: root {} is not one of its {} ranks", name(), root, size());
  const JoinedTexts texts = gathered(*implementation_, text, root, where);
  return rank() == root ? texts.split() : std::vector<std::string>();
}

void ProcessGroup::all_to_all(const NumbersToAll& exchange, Where where) const {
  require(std::ssize(exchange.sent) == total(exchange.send_counts) &&
              std::ssize(exchange.received) == total(exchange.receive_counts),
          "all_to_all on group {}: {} numbers to send and {} to receive, but the counts sum to {} and {}", name(),
          exchange.sent.size(), exchange.received.size(), total(exchange.send_counts), total(exchange.receive_counts));
  if (implementation_->communicator->rehearses()) {
    const auto self = static_cast<std::size_t>(rank());
    const auto own = exchange.sent.subspan(static_cast<std::size_t>(total(exchange.send_counts.first(self))),
                                           static_cast<std::size_t>(exchange.send_counts[self]));
    for (std::size_t i = 0; i < exchange.received.size() && !own.empty(); ++i) {
      exchange.received[i] = own[i % own.size()];
    }
  }
  const AllToAll rows{.sent = exchange.sent.data(),
                      .send_rows = exchange.send_counts,
                      .received = exchange.received.data(),
                      .receive_rows = exchange.receive_counts,
                      .row_bytes = sizeof(std::int64_t)};
  require_fitting(*this, rows);
  if (size() > 1) {
    implementation_->exchange(std::span(&rows, 1), implementation_->host, where).wait();
  } else {
    std::ranges::copy(exchange.sent, exchange.received.begin());
  }
}

}  // namespace lyceum

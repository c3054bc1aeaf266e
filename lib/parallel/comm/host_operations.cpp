#include <algorithm>
#include <climits>
#include <numeric>
#include <string_view>

#include "parallel/comm/all_reduce.h"
#include "parallel/comm/group_implementation.h"
#include "parallel/comm/pieces.h"

// What a group does with the host's memory, over MPI, wherever its tensors lie.
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

/// Waits.
template <class T>
void reduce(ProcessGroup::Implementation& group, std::span<T> values, Reduction reduction, Where where) {
  const std::shared_ptr<Communicator>& communicator = group.communicator;
  if (communicator->alone() || values.empty()) return;
  const std::int64_t bytes = std::ssize(values) * std::int64_t{sizeof(T)};
  const Operation operation{.name = "all_reduce", .bytes = bytes, .size = bytes, .where = where};
  if (!group.enter(operation, group.traffic.all_reduce)) return;
  Pending(std::make_unique<AllReduce>(communicator, operation,
                                      AllReduce::Values{values.data(), std::ssize(values), dtype_of<T>}, reduction,
                                      communicator->next_reduce_tag()))
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
  require(root >= 0 && root < size(), "broadcast on group {}: root {} of {} ranks", name(), root, size());
  if (communicator.alone() || bytes.empty()) return;
  std::int64_t nothing = 0;
  auto state = implementation_->start(
      {.name = "broadcast", .bytes = std::ssize(bytes), .size = std::ssize(bytes), .where = where},
      rank() == root ? implementation_->traffic.broadcast : nothing);
  if (!state) return;
  for_pieces(std::ssize(bytes), [&](std::int64_t first, int count) {
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

namespace {

Operation gathering(std::int64_t own, std::int64_t all, Where where) {
  return {.name = "all_gather", .bytes = own, .size = all, .where = where};
}

}  // namespace

void ProcessGroup::all_gather(std::span<const std::int64_t> sent, std::span<std::int64_t> received, Where where) const {
  require(received.size() == sent.size() * static_cast<std::size_t>(size()),
          "all_gather on group {}: {} numbers of each of {} ranks do not fill {}", name(), sent.size(), size(),
          received.size());
  require(received.size_bytes() <= INT_MAX, "all_gather on group {}: {} B in all are more than 2 GB", name(),
          received.size_bytes());
  if (sent.empty()) return;
  if (size() == 1 || implementation_->communicator->rehearses()) {
    for (std::size_t i = 0; i < received.size(); ++i) received[i] = sent[i % sent.size()];
  }
  if (size() == 1) return;
  const auto bytes = static_cast<int>(sent.size_bytes());
  auto state = implementation_->start(gathering(bytes, std::int64_t{bytes} * size(), where),
                                      implementation_->traffic.all_gather);
  if (!state) return;
  state->check(MPI_Iallgather(sent.data(), bytes, MPI_BYTE, received.data(), bytes, MPI_BYTE,
                              implementation_->communicator->handle(), state->request()));
  Pending(std::move(state)).wait();
}

namespace {

/// Texts of all ranks, one behind the other.
struct Texts {
  std::vector<int> sizes, offsets;
  std::string joined;  // room for them, where they are received

  std::vector<std::string> parted() const {
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      texts.push_back(joined.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(sizes[r])));
    }
    return texts;
  }
};

/// Tells all ranks the lengths.
Texts lengths_of(const ProcessGroup& group, const std::string& text, std::string_view operation, Where where) {
  const std::int64_t length = std::ssize(text);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(group.size()));
  group.all_gather(std::span(&length, 1), lengths, where);
  require(total(lengths) <= INT_MAX, "{} on group {}: {} B of text are more than 2 GB", operation, group.name(),
          total(lengths));
  Texts texts{.sizes = std::vector<int>(lengths.begin(), lengths.end()), .offsets = {}, .joined = {}};
  texts.offsets.resize(lengths.size());
  std::exclusive_scan(texts.sizes.begin(), texts.sizes.end(), texts.offsets.begin(), 0);
  return texts;
}

std::int64_t bytes_of(const Texts& texts) { return std::int64_t{texts.offsets.back()} + texts.sizes.back(); }

}  // namespace

std::vector<std::string> ProcessGroup::all_gather(const std::string& text, Where where) const {
  if (size() == 1) return {text};
  Texts texts = lengths_of(*this, text, "all_gather", where);
  texts.joined.resize(static_cast<std::size_t>(bytes_of(texts)));
  auto state =
      implementation_->start(gathering(std::ssize(text), bytes_of(texts), where), implementation_->traffic.all_gather);
  if (state) {
    state->check(MPI_Iallgatherv(text.data(), static_cast<int>(text.size()), MPI_BYTE, texts.joined.data(),
                                 texts.sizes.data(), texts.offsets.data(), MPI_BYTE,
                                 implementation_->communicator->handle(), state->request()));
    Pending(std::move(state)).wait();
  }
  return texts.parted();
}

std::vector<std::string> ProcessGroup::gather(const std::string& text, int root, Where where) const {
  require(root >= 0 && root < size(), "gather on group {}: root {} of {} ranks", name(), root, size());
  if (size() == 1) return {text};
  Texts texts = lengths_of(*this, text, "gather", where);
  if (rank() == root) texts.joined.resize(static_cast<std::size_t>(bytes_of(texts)));
  auto state =
      implementation_->start({.name = "gather", .bytes = std::ssize(text), .size = bytes_of(texts), .where = where},
                             implementation_->traffic.all_gather);
  if (state) {
    state->check(MPI_Igatherv(text.data(), static_cast<int>(text.size()), MPI_BYTE, texts.joined.data(),
                              texts.sizes.data(), texts.offsets.data(), MPI_BYTE, root,
                              implementation_->communicator->handle(), state->request()));
    Pending(std::move(state)).wait();
  }
  return rank() == root ? texts.parted() : std::vector<std::string>();
}

void ProcessGroup::all_to_all(const NumbersToAll& exchange, Where where) const {
  require(std::ssize(exchange.sent) == total(exchange.send_counts) &&
              std::ssize(exchange.received) == total(exchange.receive_counts),
          "all_to_all on group {}: {} numbers to send and {} to receive, counts of {} and {}", name(),
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
    implementation_->exchange(rows, implementation_->host, where).wait();
  } else {
    std::ranges::copy(exchange.sent, exchange.received.begin());
  }
}

}  // namespace lyceum

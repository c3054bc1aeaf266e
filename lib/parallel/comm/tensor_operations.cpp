#include <algorithm>

#include "parallel/comm/all_gather.h"
#include "parallel/comm/all_reduce.h"
#include "parallel/comm/chunks.h"
#include "parallel/comm/group_implementation.h"
#include "parallel/comm/reduce_in_order.h"
#include "parallel/comm/reduce_scatter.h"
#include "parallel/comm/row_exchange.h"

// The operations of a group on tensors. They use the group's transport.
namespace lyceum {
namespace {

void require_reducible(const char* operation, DType type) {
  require(reducible(type), "{} of {}: only f32, bf16, f64, i32 and i64 can be reduced", operation, name_of(type));
}

/// Throws if the parts, sizes and types of a reduce-scatter or all-gather do not agree.
void require_parts(const ProcessGroup& group, const char* operation, const Tensor& own, const Tensor& values,
                   std::span<const std::int64_t> extents) {
  require(std::ssize(extents) == group.size(), "{} on group {}: {} extents for {} ranks", operation, group.name(),
          extents.size(), group.size());
  for (const std::int64_t extent : extents) {
    require(extent >= 0, "{} on group {}: the extent {} is negative", operation, group.name(), extent);
  }
  const std::int64_t part = extents[static_cast<std::size_t>(group.rank())];
  require(values.size() == total(extents), "{} on group {}: the extents sum to {} elements, but the tensor has {}",
          operation, group.name(), total(extents), values.size());
  require(own.size() == part, "{} on group {}: the part of rank {} has {} elements, but its tensor has {}", operation,
          group.name(), group.rank(), part, own.size());
  require(part == 0 || own.dtype() == values.dtype(), "{} on group {}: the part is {}, but the whole tensor {}",
          operation, group.name(), name_of(own.dtype()), name_of(values.dtype()));
}

Parts parts_of(const Tensor& own, const Tensor& values, std::span<const std::int64_t> extents) {
  return {values, own, {extents.begin(), extents.end()}};
}

/// Returns the description of a send to, or a receive from, `peer`. Throws if `peer` is not another rank of the group.
Operation message(const Communicator& communicator, const char* name, const Tensor& values, int peer, Where where) {
  const auto bytes = static_cast<std::int64_t>(values.bytes());
  const Operation operation{.name = name, .bytes = bytes, .size = bytes, .where = where, .peer = peer};
  require(peer >= 0 && peer < communicator.size() && peer != communicator.rank(),
          "{}: the group has no such rank, or it is this rank itself", communicator.describe(operation));
  return operation;
}

}  // namespace

Pending ProcessGroup::all_reduce_async(const Tensor& values, Reduction reduction, Where where) const {
  require_reducible("all_reduce", values.dtype());
  if (size() == 1 || values.size() == 0) return {};
  const auto bytes = static_cast<std::int64_t>(values.bytes());
  const Operation operation{.name = "all_reduce", .bytes = bytes, .size = bytes, .where = where};
  if (!implementation_->enter(operation, implementation_->traffic.all_reduce)) {
    implementation_->rehearse_messages(
        [&] { return messages_of_all_reduce(rank(), size(), values.size(), values.dtype()); });
    return {};
  }
  return Pending(implementation_->tensors().all_reduce(operation, values, reduction));
}

Pending ProcessGroup::reduce_scatter_async(const Tensor& values, const Tensor& own,
                                           std::span<const std::int64_t> extents, Where where) const {
  require_parts(*this, "reduce_scatter", own, values, extents);
  if (values.size() == 0) return {};
  require_reducible("reduce_scatter", values.dtype());
  if (size() == 1) {
    implementation_->copy(own.raw(), values.raw(), values.bytes());
    return {};
  }
  const auto bytes = static_cast<std::int64_t>(values.bytes());
  const Operation operation{.name = "reduce_scatter", .bytes = bytes, .size = bytes, .where = where};
  if (!implementation_->enter(operation, implementation_->traffic.reduce_scatter)) {
    implementation_->rehearse_messages([&] { return messages_of_reduce_scatter(rank(), extents, values.dtype()); });
    return {};
  }
  return Pending(implementation_->tensors().reduce_scatter(operation, parts_of(own, values, extents)));
}

Pending ProcessGroup::all_gather_async(const Tensor& own, const Tensor& values, std::span<const std::int64_t> extents,
                                       Where where) const {
  require_parts(*this, "all_gather", own, values, extents);
  if (values.size() == 0) return {};
  if (size() == 1) {
    implementation_->copy(values.raw(), own.raw(), own.bytes());
    return {};
  }
  const Operation operation{.name = "all_gather",
                            .bytes = static_cast<std::int64_t>(own.bytes()),
                            .size = static_cast<std::int64_t>(values.bytes()),
                            .where = where};
  if (!implementation_->enter(operation, implementation_->traffic.all_gather)) {
    implementation_->rehearse_messages([&] { return messages_of_all_gather(rank(), extents); });
    return {};
  }
  return Pending(implementation_->tensors().all_gather(operation, parts_of(own, values, extents)));
}

void ProcessGroup::reduce_scatter(const Tensor& values, const Tensor& own, std::span<const std::int64_t> extents,
                                  Where where) const {
  reduce_scatter_async(values, own, extents, where).wait();
}

void ProcessGroup::all_gather(const Tensor& own, const Tensor& values, std::span<const std::int64_t> extents,
                              Where where) const {
  all_gather_async(own, values, extents, where).wait();
}

Pending ProcessGroup::send_async(const Tensor& values, int to, Where where) const {
  const Operation operation = message(*implementation_->communicator, "send", values, to, where);
  if (!implementation_->enter(operation, implementation_->traffic.send)) {
    implementation_->rehearse_messages([&] { return messages_of(operation.bytes); });
    return {};
  }
  return Pending(implementation_->tensors().send(operation, values));
}

Pending ProcessGroup::receive_async(const Tensor& values, int from, Where where) const {
  const Operation operation = message(*implementation_->communicator, "receive", values, from, where);
  std::int64_t nothing = 0;
  if (!implementation_->enter(operation, nothing)) return {};
  return Pending(implementation_->tensors().receive(operation, values));
}

void require_fitting(const ProcessGroup& group, const ProcessGroup::AllToAll& exchange) {
  const auto self = static_cast<std::size_t>(group.rank());
  require(std::ssize(exchange.send_rows) == group.size() && std::ssize(exchange.receive_rows) == group.size(),
          "all_to_all on group {}: {} counts to send and {} to receive for {} ranks", group.name(),
          exchange.send_rows.size(), exchange.receive_rows.size(), group.size());
  require(exchange.row_bytes > 0, "all_to_all on group {}: a row cannot have {} B", group.name(), exchange.row_bytes);
  for (const std::span<const std::int64_t> rows : {exchange.send_rows, exchange.receive_rows}) {
    for (const std::int64_t count : rows) {
      require(count >= 0, "all_to_all on group {}: the count {} is negative", group.name(), count);
    }
  }
  require(exchange.send_rows[self] == exchange.receive_rows[self],
          "all_to_all on group {}: rank {} sends {} rows to itself, but expects {}", group.name(), self,
          exchange.send_rows[self], exchange.receive_rows[self]);
}

Pending ProcessGroup::Implementation::exchange(std::span<const AllToAll> exchanges, Carrier& by, Where where) {
  Operation operation{.name = "all_to_all", .bytes = 0, .size = 0, .where = where};
  for (const AllToAll& exchange : exchanges) {
    const std::int64_t own = exchange.send_rows[static_cast<std::size_t>(communicator->rank())];
    operation.bytes += (total(exchange.send_rows) - own) * exchange.row_bytes;
    operation.size += exchange.row_bytes;
  }
  if (!enter(operation, traffic.all_to_all)) {
    rehearse_messages([&] { return messages_of_exchange(communicator->rank(), exchanges); });
    return {};
  }
  Carrier::Started started = by.all_to_all(operation, exchanges);
  for (const AllToAll& exchange : exchanges) {
    if (exchange.owner) started->keep(exchange.owner);
  }
  return Pending(std::move(started));
}

Pending ProcessGroup::all_to_all_async(const AllToAll& exchange, Where where) const {
  return all_to_all_async(std::span(&exchange, 1), where);
}

Pending ProcessGroup::all_to_all_async(std::span<const AllToAll> exchanges, Where where) const {
  for (const AllToAll& exchange : exchanges) require_fitting(*this, exchange);
  if (exchanges.empty()) return {};
  if (size() > 1) return implementation_->exchange(exchanges, implementation_->tensors(), where);
  for (const AllToAll& exchange : exchanges) {
    implementation_->copy(exchange.received, exchange.sent,
                          static_cast<std::size_t>(exchange.send_rows[0] * exchange.row_bytes));
  }
  return {};
}

void ProcessGroup::all_to_all(const AllToAll& exchange, Where where) const { all_to_all_async(exchange, where).wait(); }

}  // namespace lyceum

#include "parallel/comm/mpi_carrier.h"

#include <cstring>
#include <numeric>

#include "parallel/comm/all_gather.h"
#include "parallel/comm/all_reduce.h"
#include "parallel/comm/chunks.h"
#include "parallel/comm/reduce_scatter.h"
#include "parallel/comm/tree.h"

namespace lyceum {
namespace {

std::byte* bytes_of(const Tensor& values) { return static_cast<std::byte*>(values.raw()); }

}  // namespace

std::byte* Parts::begin(int rank) const {
  const auto first = std::accumulate(extents.begin(), extents.begin() + rank, std::int64_t{0});
  return static_cast<std::byte*>(all.raw()) + first * width();
}

std::vector<std::int64_t> row_offsets(std::span<const std::int64_t> rows, std::int64_t row_bytes) {
  std::vector<std::int64_t> offsets(rows.size());
  std::exclusive_scan(rows.begin(), rows.end(), offsets.begin(), std::int64_t{0});
  for (std::int64_t& offset : offsets) offset *= row_bytes;
  return offsets;
}

Carrier::Started MpiCarrier::all_reduce(const Operation& operation, const Tensor& values, Reduction reduction) {
  auto state = start_all_reduce(communicator_, operation, {values.raw(), values.size(), values.dtype()}, reduction);
  state->keep(std::make_shared<Tensor>(values));
  return state;
}

Carrier::Started MpiCarrier::reduce_scatter(const Operation& operation, const Parts& parts) {
  return std::make_unique<ReduceScatter>(communicator_, operation, parts, communicator_->next_reduce_tag());
}

Carrier::Started MpiCarrier::all_gather(const Operation& operation, const Parts& parts) {
  const int self = communicator_->rank(), size = communicator_->size();
  if (large_group(size)) {
    return std::make_unique<AllGather>(communicator_, operation, parts, communicator_->next_reduce_tag());
  }
  auto state = std::make_unique<Messages>(communicator_, operation);
  state->keep(std::make_shared<Tensor>(parts.all));
  std::byte* const own = parts.begin(self);
  if (parts.own.size() && own != parts.own.raw()) std::memcpy(own, parts.own.raw(), parts.own.bytes());
  for (int step = 1; step < size; ++step) {
    const int from = (self + size - step) % size;
    if (parts.bytes(from) > 0) state->receive(parts.begin(from), parts.bytes(from), from, all_gather_tag);
  }
  for (int step = 1; step < size && parts.bytes(self) > 0; ++step) {
    state->send(own, parts.bytes(self), (self + step) % size, all_gather_tag);
  }
  return state;
}

Carrier::Started MpiCarrier::send(const Operation& operation, const Tensor& values) {
  auto state = std::make_unique<Messages>(communicator_, operation);
  state->keep(std::make_shared<Tensor>(values));
  state->send(bytes_of(values), operation.bytes, operation.peer, point_to_point_tag);
  return state;
}

Carrier::Started MpiCarrier::receive(const Operation& operation, const Tensor& values) {
  auto state = std::make_unique<Messages>(communicator_, operation);
  state->keep(std::make_shared<Tensor>(values));
  state->receive(bytes_of(values), operation.bytes, operation.peer, point_to_point_tag);
  return state;
}

// One message per pair of ranks and direction; receives are started first. Messages between two ranks keep their order.
// So exchanges that all ranks start in the same order match, even if several are in flight. Ranks with nothing to send
// or receive start the operation too, so that operation numbers in the ledger agree.
Carrier::Started MpiCarrier::all_to_all(const Operation& operation, const ProcessGroup::AllToAll& exchange) {
  const auto self = static_cast<std::size_t>(communicator_->rank()),
             ranks = static_cast<std::size_t>(communicator_->size());
  const std::vector<std::int64_t> send_at = row_offsets(exchange.send_rows, exchange.row_bytes),
                                  receive_at = row_offsets(exchange.receive_rows, exchange.row_bytes);
  const auto* sent = static_cast<const std::byte*>(exchange.sent);
  auto* received = static_cast<std::byte*>(exchange.received);
  auto state = std::make_unique<Messages>(communicator_, operation);
  if (const std::int64_t own = exchange.send_rows[self] * exchange.row_bytes) {
    std::memcpy(received + receive_at[self], sent + send_at[self], static_cast<std::size_t>(own));
  }
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t from = (self + ranks - step) % ranks;
    if (exchange.receive_rows[from] == 0) continue;
    state->receive(received + receive_at[from], exchange.receive_rows[from] * exchange.row_bytes,
                   static_cast<int>(from), all_to_all_tag);
  }
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t to = (self + step) % ranks;
    if (exchange.send_rows[to] == 0) continue;
    state->send(sent + send_at[to], exchange.send_rows[to] * exchange.row_bytes, static_cast<int>(to), all_to_all_tag);
  }
  return state;
}

std::unique_ptr<Carrier> MpiCarrier::split(const std::shared_ptr<Communicator>& child, int, Where) {
  return child->alone() ? nullptr : std::make_unique<MpiCarrier>(child);
}

}  // namespace lyceum

#include "parallel/comm/mpi_carrier.h"

#include <cstring>
#include <numeric>

#include "parallel/comm/all_gather.h"
#include "parallel/comm/all_reduce.h"
#include "parallel/comm/chunks.h"
#include "parallel/comm/reduce_scatter.h"
#include "parallel/comm/row_exchange.h"
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

Carrier::Started MpiCarrier::all_to_all(const Operation& operation, std::span<const ProcessGroup::AllToAll> exchanges) {
  return std::make_unique<RowExchange>(communicator_, operation, exchanges);
}

std::unique_ptr<Carrier> MpiCarrier::split(const std::shared_ptr<Communicator>& child, int, Where) {
  return child->alone() ? nullptr : std::make_unique<MpiCarrier>(child);
}

}  // namespace lyceum

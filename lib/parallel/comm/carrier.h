#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Every rank's part of a tensor, in rank order, and this rank's own, which may lie in it.
struct Parts {
  Tensor all, own;
  std::vector<std::int64_t> extents;  // elements of each rank's part

  std::int64_t width() const { return static_cast<std::int64_t>(size_of(all.dtype())); }
  std::int64_t bytes(int rank) const { return extents[static_cast<std::size_t>(rank)] * width(); }
  /// Where the rank's part begins in `all`.
  std::byte* begin(int rank) const;
};

/// Starts operations on the tensors of one group of several ranks. What they are given has been checked, and the
/// transport keeps its memory alive, but for that of an exchange.
class Carrier {
 public:
  using Started = std::unique_ptr<Pending::State>;
  virtual ~Carrier() = default;
  virtual Started all_reduce(const Operation& operation, const Tensor& values, Reduction reduction) = 0;
  virtual Started reduce_scatter(const Operation& operation, const Parts& parts) = 0;
  virtual Started all_gather(const Operation& operation, const Parts& parts) = 0;
  /// To and from operation.peer.
  virtual Started send(const Operation& operation, const Tensor& values) = 0;
  virtual Started receive(const Operation& operation, const Tensor& values) = 0;
  virtual Started all_to_all(const Operation& operation, const ProcessGroup::AllToAll& exchange) = 0;
  /// Collective over the group, which was just split into groups of one colour each: the carrier of `child`, this
  /// rank's; null for a group of one.
  virtual std::unique_ptr<Carrier> split(const std::shared_ptr<Communicator>& child, int colour, Where where) = 0;
};

/// Where the tensors of a world's groups lie, and what their carriers share.
class TensorTransport {
 public:
  explicit TensorTransport(Stream stream) : stream(std::move(stream)) {}
  virtual ~TensorTransport() = default;
  /// Collective over the group, which has several ranks. Groups split from it get theirs from this one.
  virtual std::unique_ptr<Carrier> carrier(const std::shared_ptr<Communicator>& communicator, Where where) = 0;

  const Stream stream;
};

/// Where rows of an exchange begin, in bytes, by rank.
std::vector<std::int64_t> row_offsets(std::span<const std::int64_t> rows, std::int64_t row_bytes);

}  // namespace lyceum

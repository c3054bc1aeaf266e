#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// The arguments of a reduce-scatter or an all-gather: the tensor with the parts of all ranks, in rank order, and this
/// rank's part, which may be the memory of that part in `all`.
struct Parts {
  Tensor all, own;
  std::vector<std::int64_t> extents;  // elements of each rank's part

  std::int64_t width() const { return static_cast<std::int64_t>(size_of(all.dtype())); }
  std::int64_t bytes(int rank) const { return extents[static_cast<std::size_t>(rank)] * width(); }
  /// Returns the beginning of the rank's part in `all`.
  std::byte* begin(int rank) const;
};

/// Sends the tensors of one group of two or more ranks. Each function starts an operation and returns its state.
/// Callers have checked the arguments. The operations keep the memory of tensors alive, but not that of an AllToAll.
class Carrier {
 public:
  using Started = std::unique_ptr<Pending::State>;
  virtual ~Carrier() = default;
  virtual Started all_reduce(const Operation& operation, const Tensor& values, Reduction reduction) = 0;
  virtual Started reduce_scatter(const Operation& operation, const Parts& parts) = 0;
  virtual Started all_gather(const Operation& operation, const Parts& parts) = 0;
  /// Starts a message to (send) or from (receive) rank operation.peer of the group.
  virtual Started send(const Operation& operation, const Tensor& values) = 0;
  virtual Started receive(const Operation& operation, const Tensor& values) = 0;
  virtual Started all_to_all(const Operation& operation, std::span<const ProcessGroup::AllToAll> exchanges) = 0;
  /// Collective over the group, which has just been split by colour. Returns the carrier of `child`, the part with this
  /// rank; null for a group of one.
  virtual std::unique_ptr<Carrier> split(const std::shared_ptr<Communicator>& child, int colour, Where where) = 0;
};

/// Makes carriers for the tensors of one stream's device, and owns what these carriers share.
class TensorTransport {
 public:
  explicit TensorTransport(Stream stream) : stream(std::move(stream)) {}
  virtual ~TensorTransport() = default;
  /// Collective over the group, which has two or more ranks. Makes a carrier for a group whose parent has none;
  /// carriers of groups split from it are made by Carrier::split().
  virtual std::unique_ptr<Carrier> carrier(const std::shared_ptr<Communicator>& communicator, Where where) = 0;

  const Stream stream;
};

/// Returns the byte offset of each rank's rows in a buffer that holds `rows[r]` rows for rank r, in rank order.
std::vector<std::int64_t> row_offsets(std::span<const std::int64_t> rows, std::int64_t row_bytes);

}  // namespace lyceum

#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "core/cuda_event.h"

namespace lyceum {

/// The operations of all lanes of a process in one order on the GPU (NcclOrder::serial): that in which they were
/// started. It depends neither on when lanes are connected nor on when NCCL's threads launch an operation.
///
/// An operation
///   1. calls line_up() when it is started,
///   2. is passed to NCCL once first() is true, behind the operation before it (hold()),
///   3. calls append() once NCCL has put it into its lane's stream.
class NcclChain {
 public:
  void line_up(const void* operation) { line_.push_back(operation); }
  /// True if all operations that were started earlier are in their streams. The operation must be in the line.
  bool first(const void* operation) const { return line_.front() == operation; }
  /// Removes an operation that ends without append(); no effect after append().
  void leave(const void* operation) { std::erase(line_, operation); }
  /// Makes work that is added to `stream` from now on wait for the operation that was appended last.
  void hold(cudaStream_t stream) const {
    if (last_) last_->hold(stream);
  }
  /// Removes the operation from the line. `done`: the event of its end, which has been recorded.
  void append(const void* operation, std::shared_ptr<CudaEvent> done) {
    leave(operation);
    last_ = std::move(done);
  }

 private:
  std::deque<const void*> line_;     // started, but not in their streams yet
  std::shared_ptr<CudaEvent> last_;  // null: no operation so far
};

}  // namespace lyceum

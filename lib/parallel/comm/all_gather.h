#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/comm/carrier.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

/// An all-gather of tensors over MPI in a large_group(). In round r, a rank that holds the parts of itself and the 2^r
/// − 1 ranks after it, modulo the number of ranks, sends them to the rank 2^r before it, and receives those of the rank
/// 2^r after it [Bruck et al. 1997]. In the last round it sends only the parts that are still missing there. A rank
/// sends up to 2 · ⌈log2(ranks)⌉ messages, and all ranks together as many bytes as if each sent its part to all others.
class AllGather final : public Messages {
 public:
  /// Starts the operation. `tag` must be the same on all ranks and differ from those of other operations in flight.
  AllGather(std::shared_ptr<Communicator> communicator, const Operation& operation, const Parts& parts, int tag);

 private:
  bool next() override;
  void start_round();

  Tensor all_;
  std::vector<std::int64_t> begin_;  // [ranks + 1]: byte offset of each rank's part in all_, and the end
  int tag_;
  int held_ = 1;  // number of parts that this rank has, from its own on
};

/// Returns the number of messages that rank `rank` sends in an all-gather of parts of these sizes.
std::int64_t messages_of_all_gather(int rank, std::span<const std::int64_t> extents);

}  // namespace lyceum

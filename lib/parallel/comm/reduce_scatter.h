#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "parallel/comm/carrier.h"
#include "parallel/comm/level_reduce.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

/// A reduce-scatter of sums over MPI, in rounds of a bounded size. In each round, ranks exchange partial sums level by
/// level (ReductionLevel) until each has the sums of its part. The sums have the bits that all_reduce would
/// produce. The scratch memory is less than that of three rounds. A rank sends up to Σ (f_l − 1) messages per round,
/// where f_l are the radices of the levels: one to every other rank of up to 8, about 1.5 · log2(ranks) for more.
class ReduceScatter final : public Messages {
 public:
  /// Starts the operation. `parts.own` becomes the sum of this rank's part; it may be the memory of that part in
  /// `parts.all`. `tag` must be the same on all ranks and differ from the tags of all other operations in flight.
  ReduceScatter(std::shared_ptr<Communicator> communicator, const Operation& operation, Parts parts, int tag);

 private:
  bool next() override;
  void begin_round();

  Parts parts_;
  std::int64_t width_;  // bytes per element
  int tag_;
  LevelReduce reduce_;
  std::vector<int> rank_of_slice_;
  std::vector<std::byte*> begin_;  // of each rank's part
  std::int64_t most_;              // maximum number of elements of a part in one round
  std::int64_t longest_;           // elements of the longest part
  std::int64_t first_ = 0;         // first element of the current round, in every part
  std::size_t level_ = 0;          // of the current round
  std::vector<std::byte> packed_;  // with several levels: the parts of the round, in the order of slices
};

/// Returns the number of messages that rank `rank` sends in a reduce-scatter of parts of these sizes. `extents`: the
/// elements of each rank's part.
std::int64_t messages_of_reduce_scatter(int rank, std::span<const std::int64_t> extents, DType type);

}  // namespace lyceum

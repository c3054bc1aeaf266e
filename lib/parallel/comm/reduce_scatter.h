#pragma once

#include <cstddef>
#include <memory>

#include "parallel/comm/carrier.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

/// A reduce-scatter of sums over MPI. Every rank receives its own part from all others, in rounds of a bounded size,
/// and adds in rank order. The sums have the bits that all_reduce would produce. The scratch memory is that of one
/// round.
class ReduceScatter final : public Messages {
 public:
  /// Starts the operation. `parts.own` becomes the sum of this rank's part; it may be the memory of that part in
  /// `parts.all`. `tag` must be the same on all ranks and differ from the tags of all other operations in flight.
  ReduceScatter(std::shared_ptr<Communicator> communicator, const Operation& operation, Parts parts, int tag);

 private:
  bool next() override;
  void exchange();
  /// Returns the number of elements of a rank's part that are sent in the current round.
  std::int64_t count(int rank) const;

  Parts parts_;
  std::int64_t width_;  // bytes per element
  int tag_;
  std::int64_t most_;                      // maximum number of elements of a part in one round
  std::int64_t first_ = 0;                 // first element of the current round, in every part
  std::unique_ptr<std::byte[]> received_;  // this rank's part of the round from every rank, in rank order
};

}  // namespace lyceum

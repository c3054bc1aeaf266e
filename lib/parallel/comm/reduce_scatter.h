#pragma once

#include <cstddef>
#include <memory>

#include "parallel/comm/carrier.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

/// A reduce-scatter of sums by direct messages: every rank receives its own part from all others, in rounds of a
/// bounded size, and adds in rank order. So a part holds the bits that all_reduce would leave there, and the scratch
/// memory is that of one round, whatever the size.
class ReduceScatter final : public Messages {
 public:
  /// Starts it. `parts.own` becomes the sum of this rank's part; it may be where that part is in `parts.all`. `tag`
  /// must be the same on all ranks and differ from that of every operation that is under way.
  ReduceScatter(std::shared_ptr<Communicator> communicator, const Operation& operation, Parts parts, int tag);

 private:
  bool next() override;
  void exchange();
  /// Elements of a rank's part that the current round moves.
  std::int64_t count(int rank) const;

  Parts parts_;
  std::int64_t width_;  // bytes of an element
  int tag_;
  std::int64_t most_;                      // elements of a part in one round
  std::int64_t first_ = 0;                 // of the current round, in every part
  std::unique_ptr<std::byte[]> received_;  // this rank's part from every rank, in rank order
};

}  // namespace lyceum

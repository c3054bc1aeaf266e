#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

/// A reduce-scatter of sums by direct messages: every rank receives its own part from all others, in rounds of a
/// bounded size, and adds in rank order. So a part holds the bits that all_reduce would leave there, and the scratch
/// memory is that of one round, whatever the size.
class ReduceScatter final : public Pending::State {
 public:
  struct Values {
    Tensor all;                         // every rank's part, in rank order
    Tensor own;                         // the sum of this rank's part; may lie where that part lies in `all`
    std::vector<std::int64_t> extents;  // elements of each rank's part
  };
  /// Starts it. `tag` must be the same on all ranks and differ from that of every operation that is under way.
  ReduceScatter(std::shared_ptr<Communicator> communicator, Values values, int tag, Where where);
  static Operation operation(const Tensor& all, Where where);

 private:
  bool next() override;
  void exchange();
  /// Elements of a rank's part that the current round moves.
  std::int64_t count(int rank) const;

  Values values_;
  std::int64_t width_;                // bytes of an element
  std::vector<std::int64_t> begins_;  // of each part in `all`, elements
  int tag_;
  std::int64_t most_;                      // elements of a part in one round
  std::int64_t first_ = 0;                 // of the current round, in every part
  std::unique_ptr<std::byte[]> received_;  // this rank's part from every rank, in rank order
};

}  // namespace lyceum

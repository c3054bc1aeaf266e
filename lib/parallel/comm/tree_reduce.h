#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/comm/all_reduce.h"
#include "parallel/comm/pending_state.h"
#include "parallel/comm/reduction_levels.h"

namespace lyceum {

/// An all-reduce of whole vectors along the tree of the levels of ReductionLevel:
///
/// 1. Level by level, a rank with digit 0 receives the partial sums of the ranks that differ from it in this digit
///   alone, and adds them up. A rank with another digit sends its partial sum to that rank, and then waits.
/// 2. Rank 0 has the sum. Each rank that has it sends it to the ranks from which it received, the highest level first.
///
/// Rank 0 sends Σ (f_l − 1) messages, where f_l are the radices; the mean over ranks is less than 2.
class TreeReduce final : public Messages {
 public:
  TreeReduce(std::shared_ptr<Communicator> communicator, const Operation& operation, const ReducedValues& values,
             Reduction reduction, int tag);

 private:
  enum class Phase { summing, sending, receiving, distributing };
  bool next() override;
  void begin_level();
  void add_up();
  void distribute();
  DType type_at(std::size_t level) const { return level == 0 ? values_.type : partial_sum_type(values_.type); }
  /// Returns the bytes of a partial sum before this level.
  std::int64_t bytes_at(std::size_t level) const;
  /// Returns this rank's partial sum before this level.
  std::byte* partial(std::size_t level) const;
  /// Returns the rank that differs from this one in the digit of this level alone.
  int peer(std::size_t level, int digit) const;

  ReducedValues values_;
  Reduction reduction_;
  int tag_;
  std::vector<ReductionLevel> levels_;
  std::size_t top_;        // the level at which this rank sends; for rank 0 the number of levels
  std::size_t level_ = 0;  // the current one
  Phase phase_ = Phase::summing;
  std::unique_ptr<std::byte[]> received_;  // partial sums of the other ranks of a level, by digit
  std::unique_ptr<std::byte[]> sum_;       // partial sum of this rank, from the second level on
};

/// Returns the number of messages that rank `rank` of `ranks` sends in this operation.
std::int64_t messages_of_tree_reduce(int rank, int ranks);

}  // namespace lyceum

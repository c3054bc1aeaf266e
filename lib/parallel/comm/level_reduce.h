#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/dtype.h"
#include "parallel/comm/pending_state.h"
#include "parallel/comm/reduction_levels.h"

namespace lyceum {

/// The values of one chunk of a vector on this rank, as slices in the order of ReductionLevel.
struct SlicedValues {
  std::vector<std::int64_t> first;  // [ranks + 1]: elements of slice s are [first[s], first[s + 1])
  /// [ranks]: the memory of each slice. With more than one level, slices are adjacent in memory.
  std::vector<const std::byte*> slices;
  std::byte* sum;  // receives the sum of this rank's slice; may be the memory of that slice
};

/// Reduces chunks over all ranks so that each rank gets the sum of its slice, level by level. Part of an operation,
/// whose messages it starts. For each chunk call begin(), then for each level exchange(), and reduce() once the
/// messages of exchange() have arrived.
class LevelReduce {
 public:
  LevelReduce(int rank, int ranks, DType type, Reduction reduction);
  const std::vector<ReductionLevel>& levels() const { return levels_; }

  /// Sets the next chunk. Its values must not change before the last reduce().
  void begin(SlicedValues values) { values_ = std::move(values); }
  /// Starts the messages of a level, from 0 on.
  void exchange(Messages& messages, int tag, std::size_t level);
  /// Adds up what has arrived.
  void reduce(std::size_t level);

 private:
  /// Returns the number of elements of the slices that a rank with this digit keeps.
  std::int64_t elements(const ReductionLevel& level, int digit) const;
  /// Returns this rank's partial sums, before the level, of the slices that a rank with this digit keeps.
  const std::byte* partial(std::size_t level, int digit) const;
  DType type_at(std::size_t level) const { return level == 0 ? type_ : partial_sum_type(type_); }

  int rank_;
  DType type_;
  Reduction reduction_;
  std::vector<ReductionLevel> levels_;
  SlicedValues values_{};
  std::unique_ptr<std::byte[]> received_;            // the kept slices from each other rank of the level, by digit
  std::unique_ptr<std::byte[]> sums_;                // partial sums of the slices that were kept at level 0
  std::size_t received_bytes_ = 0, sums_bytes_ = 0;  // allocated
};

}  // namespace lyceum

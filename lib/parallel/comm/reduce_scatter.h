#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/comm/carrier.h"
#include "parallel/comm/level_reduce.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

/// The sizes of the rounds of a reduce-scatter. They depend on the sizes of the parts alone, so every rank has the
/// same.
///
/// In groups of one level (ReductionLevel), a round contains up to 1 MiB / ranks of each part. In other groups it
/// contains 1 MiB of all unfinished parts together: the same number of elements of each, or the rest of a shorter one.
/// So parts of different sizes take as many rounds as equal ones with the same sum. If a radix is larger than 4, the
/// elements of a part are also bounded so that no rank receives more than the values of 4 rounds at that level.
class RoundSizes {
 public:
  /// `extents`: the elements of each rank's part. `width`: bytes per element.
  RoundSizes(std::span<const std::int64_t> extents, std::int64_t width);
  /// Returns the maximum number of elements of a part in the round that begins with element `begin` of every part.
  std::int64_t most(std::int64_t begin) const;
  /// Returns the number of elements of the longest part.
  std::int64_t longest() const { return ascending_.back(); }

 private:
  std::vector<std::int64_t> ascending_;  // the sizes of the parts, in ascending order
  std::int64_t even_;                    // elements of each part per round if all parts have equal sizes
  std::int64_t largest_;                 // upper bound of most()
  std::int64_t round_;                   // elements of all parts together in a round
};

/// A reduce-scatter of sums over MPI, in rounds of a bounded size (RoundSizes). In each round, ranks exchange partial
/// sums level by level (ReductionLevel) until each has the sums of its part. The sums have the bits that all_reduce
/// would produce. The scratch memory is less than that of three rounds for parts of equal size; for others it is up to
/// six rounds, or eleven for bf16, whose partial sums are f32. A rank sends up to Σ (f_l − 1) messages per round, where
/// f_l are the radices of the levels: one to every other rank of up to 8, about 1.5 · log2(ranks) for more.
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
  RoundSizes sizes_;
  std::int64_t first_ = 0;         // first element of the current round, in every part
  std::int64_t most_ = 0;          // maximum number of elements of a part in the current round
  std::size_t level_ = 0;          // of the current round
  std::vector<std::byte> packed_;  // with several levels: the parts of the round, in the order of slices
};

/// Returns the number of messages that rank `rank` sends in a reduce-scatter of parts of these sizes. `extents`: the
/// elements of each rank's part.
std::int64_t messages_of_reduce_scatter(int rank, std::span<const std::int64_t> extents, DType type);

}  // namespace lyceum

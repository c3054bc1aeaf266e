#pragma once

#include <cstddef>
#include <cstdint>

namespace lyceum {

/// Which samples a run reads, of a number that it counts: all samples before `limit` in the order, epoch after epoch,
/// each epoch with its own permutation.
class SampleOrder {
 public:
  enum class Kind { shuffled, sequential };
  /// `first`, `count`: the range of samples that this split owns; an empty range can be made but not read. `source`: of
  /// a mixture, whose sources have permutations of their own.
  SampleOrder(Kind kind, std::uint64_t seed, std::int64_t first, std::int64_t count, std::size_t source = 0);
  /// The stream's sample at global position `index` (step · global batch + position); pure.
  std::int64_t operator()(std::int64_t index) const;
  std::int64_t first() const { return first_; }
  std::int64_t count() const { return count_; }
  /// An order of `samples` positions, 1 to count(), which are spread evenly over those of an epoch of this one.
  SampleOrder spread(std::int64_t samples) const;

 private:
  Kind kind_;
  std::uint64_t seed_;
  std::int64_t first_, count_;
  std::size_t source_;
  std::int64_t taken_;  // of the count_ positions of an epoch
};

}  // namespace lyceum

#pragma once

#include <cstddef>
#include <cstdint>

namespace lyceum {

/// The order in which a run reads the samples [first, first + count) of a source. The order is divided into epochs of
/// `count` positions, each with its own permutation, so every sample occurs once per epoch.
class SampleOrder {
 public:
  enum class Kind { shuffled, sequential };
  /// `first`, `count`: the range of samples that this split owns. An order of an empty range can be constructed but not
  /// read. `source`: the index of the source in a mixture; each source has its own permutations.
  SampleOrder(Kind kind, std::uint64_t seed, std::int64_t first, std::int64_t count, std::size_t source = 0);
  /// Returns the sample at a global position ≥ 0: `index` is step · global batch + position in the batch. Depends only
  /// on the arguments of the constructor and `index`.
  std::int64_t operator()(std::int64_t index) const;
  /// Return the range of samples, as given to the constructor.
  std::int64_t first() const { return first_; }
  std::int64_t count() const { return count_; }
  /// Returns the index of the source, as given to the constructor.
  std::size_t source() const { return source_; }
  /// Returns the order with the permutations of source `source`.
  SampleOrder of_source(std::size_t source) const;
  /// Returns an order with `samples` positions per epoch (1 to count()), which are evenly spaced among the positions of
  /// an epoch of this order.
  SampleOrder spread(std::int64_t samples) const;

 private:
  Kind kind_;
  std::uint64_t seed_;
  std::int64_t first_, count_;
  std::size_t source_;
  std::int64_t taken_;  // positions per epoch: count_, or less after spread()
};

}  // namespace lyceum

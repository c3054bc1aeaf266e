#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/contents.h"
#include "io/checkpoint/manifest.h"

namespace lyceum {

/// Assigns ranges of the flat datasets of a shard to its small boxes: a dataset for each small box would take more time
/// than its values. All boxes of a shard must be added in the order of the rank's slices.
class PackedRanges {
 public:
  /// Boxes with fewer elements are packed.
  static constexpr std::int64_t fewest_elements = 1 << 14;

  /// Adds a box with `count` > 0 elements. Returns the index of its first element in dataset(type), or nothing if it
  /// is not packed.
  std::optional<std::int64_t> add(DType type, std::int64_t count);
  /// Returns the number of packed elements of a type so far.
  std::int64_t elements(DType type) const { return type == DType::bf16 ? halves_ : floats_; }
  /// Returns the name of the dataset of packed boxes of a type. No tensor can have it, because of its brackets.
  static std::string dataset(DType type);

 private:
  std::int64_t floats_ = 0, halves_ = 0;
};

/// Returns this rank's slices (names, shapes, boxes, types, without values), the step and the run in a binary form, to
/// be sent to the rank that plans the save. Throws a failed Error if a name or a shape cannot be stored.
std::string describe_slices(const CheckpointHeader& header, std::span<const CheckpointSlice> slices);

/// Returns all tensors of the checkpoint, sorted by name, with the boxes that each rank saves. `descriptions` has the
/// result of describe_slices() of every rank, in rank order. Throws a failed Error that names tensor and ranks if the
/// ranks disagree about step, run, a shape or a type, or if the boxes do not cover every tensor exactly once.
std::vector<StoredTensor> plan_tensors(const CheckpointHeader& header, const std::vector<std::string>& descriptions);

}  // namespace lyceum

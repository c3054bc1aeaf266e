#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lyceum {

/// A rectangular part of a logical tensor: elements [offset, offset + extent) of each axis.
struct Box {
  Shape offset, extent;
  bool operator==(const Box&) const = default;

  /// Returns the box that covers a whole tensor of this shape.
  static Box whole(const Shape& shape);
  /// Returns the box in the notation of Python slices: "[0:4,8:16]".
  std::string text() const;
};

/// Returns the elements [first, first + count) of a row-major tensor of this shape as boxes, in order. Each box is
/// contiguous in the tensor. There are at most 2 · rank − 1 boxes; for a matrix they are the end of a row, whole rows,
/// and the beginning of a row. Throws a failed Error if the range is not inside the tensor.
std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t first, std::int64_t count);

/// True if the box has as many dimensions as `shape` and is inside a tensor of that shape.
bool inside(const Box& box, const Shape& shape);
/// Returns the intersection of two boxes of one tensor; nothing if they share no element.
std::optional<Box> intersection(const Box& a, const Box& b);
/// Returns the indices of two boxes that share elements, or nothing if there are none. Takes O(n log n) time if the
/// boxes are slices along one axis.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::span<const Box> boxes);

}  // namespace lyceum

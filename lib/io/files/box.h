#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lyceum {

/// A rectangular part of a logical tensor.
struct Box {
  Shape offset, extent;
  bool operator==(const Box&) const = default;

  /// All of a tensor of this shape.
  static Box whole(const Shape& shape);
  /// As a slice of Python: "[0:4,8:16]".
  std::string text() const;
};

/// The elements [first, first + count) of a row-major tensor of this shape as boxes, in order: each is contiguous
/// there. At most 2 · rank − 1: part of a row, whole rows, part of a row.
std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t first, std::int64_t count);

/// Same number of dimensions, and no element outside.
bool inside(const Box& box, const Shape& shape);
/// What two boxes of one tensor share; nothing when that is empty.
std::optional<Box> intersection(const Box& a, const Box& b);
/// Indices of two boxes that share elements, if there are such. Quick when the boxes are slices along one axis.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::span<const Box> boxes);

}  // namespace lyceum

#pragma once

#include "core/tensor.h"

namespace lyceum {

/// A rectangular part of a logical tensor.
struct Box {
  Shape offset, extent;
  bool operator==(const Box&) const = default;

  /// All of a tensor of this shape.
  static Box whole(const Shape& shape) {
    Box box{.offset = shape, .extent = shape};
    for (int axis = 0; axis < shape.rank(); ++axis) box.offset[axis] = 0;
    return box;
  }
};

}  // namespace lyceum

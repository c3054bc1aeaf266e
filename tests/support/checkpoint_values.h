#pragma once

#include <vector>

#include "core/copy.h"
#include "io/checkpoint/checkpoint.h"

namespace lyceum {

/// Returns the values that a checkpoint would get for this slice: computed by its recipe, or copied from its stream's
/// device.
inline std::vector<float> checkpoint_values(const CheckpointPiece& piece) {
  std::vector<float> values(static_cast<std::size_t>(piece.box.extent.size()));
  if (piece.make) {
    piece.make(values);
  } else {
    copy_to_host(*piece.stream, values.data(), piece.values, values.size() * sizeof(float));
  }
  return values;
}

}  // namespace lyceum

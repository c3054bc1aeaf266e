#pragma once

#include <vector>

#include "core/copy.h"
#include "io/checkpoint/checkpoint.h"

namespace lyceum {

/// Returns the values that a checkpoint would get for this slice: computed by its recipe, or copied from its stream's
/// device.
inline std::vector<float> checkpoint_values(const CheckpointSlice& slice) {
  std::vector<float> values(static_cast<std::size_t>(slice.box.extent.size()));
  if (slice.make) {
    slice.make(values);
  } else {
    copy_to_host(*slice.stream, values.data(), slice.values, values.size() * sizeof(float));
  }
  return values;
}

}  // namespace lyceum

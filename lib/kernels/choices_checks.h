#pragma once

#include "kernels/checks.h"
#include "kernels/choices.h"
#include "kernels/cuda/host_device.h"

namespace lyceum {

/// Throws an Error unless the extents of the operands fit together. Used by all devices.
inline void require_fitting(const MapChoices& map) {
  require_extents("MapChoices", "y", map.y, map.index.rows, map.index.cols);
}

/// Returns MapChoices::y[t, j]: the destination of choice j of token t, or −1. The indices must have been checked.
LYCEUM_HOST_DEVICE std::int32_t destination_of(const MapChoices& map, std::int64_t t, std::int64_t j) {
  const std::int32_t* index = map.index.row(t);
  const auto destination = [&](std::int64_t i) {
    return index[i] < 0 ? -1 : map.destination[static_cast<std::size_t>(index[i])];
  };
  const std::int32_t own = destination(j);
  for (std::int64_t earlier = 0; map.once && own >= 0 && earlier < j; ++earlier) {
    if (destination(earlier) == own) return -1;
  }
  return own;
}

}  // namespace lyceum

#pragma once

#include "kernels/checks.h"
#include "kernels/choices.h"
#include "kernels/cuda/host_device.h"

namespace lyceum {

/// What the host and a GPU ask of their operands alike.
inline void require_fitting(const MapChoices& map) {
  require_extents("MapChoices", "y", map.y, map.index.rows, map.index.cols);
}

/// The place that choice j of token t leads to, the first time that the token leads there or every time; −1: none. Of
/// indices that were checked.
LYCEUM_HOST_DEVICE std::int32_t place_of(const MapChoices& map, std::int64_t t, std::int64_t j) {
  const std::int32_t* index = map.index.row(t);
  const auto place = [&](std::int64_t i) { return index[i] < 0 ? -1 : map.place[static_cast<std::size_t>(index[i])]; };
  const std::int32_t own = place(j);
  for (std::int64_t earlier = 0; map.once && own >= 0 && earlier < j; ++earlier) {
    if (place(earlier) == own) return -1;
  }
  return own;
}

}  // namespace lyceum

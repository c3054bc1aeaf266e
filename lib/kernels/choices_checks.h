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

inline void require_fitting(const DivideChoices& divide) {
  const std::int64_t experts = std::ssize(divide.first_share) - 1;
  require_extents("DivideChoices", "y", divide.y, divide.index.rows, divide.index.cols);
  require_length("DivideChoices", "position", divide.position, divide.index.size());
  require_length("DivideChoices", "first_position", divide.first_position, experts + 1);
  require_length("DivideChoices", "destination", divide.destination, std::ssize(divide.share_begin));
}

/// Returns DivideChoices::y[t, j].
LYCEUM_HOST_DEVICE std::int32_t destination_of(const DivideChoices& divide, std::int64_t t, std::int64_t j) {
  const std::int32_t choice = divide.index.row(t)[j];
  if (choice < 0 || choice + 1 >= static_cast<std::int64_t>(divide.first_share.size())) return choice;
  const auto expert = static_cast<std::size_t>(choice);
  const auto first = static_cast<std::size_t>(divide.first_share[expert]);
  auto share = static_cast<std::size_t>(divide.first_share[expert + 1]);
  if (share == first) return choice;
  const std::int64_t number =
      divide.position[static_cast<std::size_t>(t * divide.index.cols + j)] - divide.first_position[expert];
  for (--share; share > first && divide.share_begin[share] > number;) --share;
  return divide.destination[share];
}

}  // namespace lyceum

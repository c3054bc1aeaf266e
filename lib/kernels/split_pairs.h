#pragma once

#include "kernels/checks.h"
#include "kernels/cuda/host_device.h"
#include "kernels/permute.h"

namespace lyceum {

/// Returns the value of SplitPairs::in_slots[i].
LYCEUM_HOST_DEVICE std::int64_t part_in_slots(const SplitPairs& split, std::int64_t i) {
  const std::int64_t part = i / split.k % split.parts, token = i / (split.k * split.parts);
  const std::int64_t slot = split.slot_of_pair[static_cast<std::size_t>(token * split.k + i % split.k)];
  return slot < 0 ? -1 : slot * split.parts + part;
}

/// Returns the value of SplitPairs::by_token[i].
LYCEUM_HOST_DEVICE std::int64_t part_by_token(const SplitPairs& split, std::int64_t i) {
  const std::int64_t pair = split.pair_of_slot[static_cast<std::size_t>(i / split.parts)];
  return pair < 0 ? -1 : (pair / split.k * split.parts + i % split.parts) * split.k + pair % split.k;
}

/// Throws an Error unless the operands fit together. Used by all devices.
inline void require_fitting(const SplitPairs& split) {
  const std::int64_t pairs = std::ssize(split.slot_of_pair);
  require(split.k > 0 && split.parts > 0 && pairs % split.k == 0,
          "SplitPairs: {} pairs of {} choices cannot be split into {} parts", pairs, split.k, split.parts);
  require_length("SplitPairs", "in_slots", split.in_slots, pairs * split.parts);
  require_length("SplitPairs", "by_token", split.by_token, std::ssize(split.pair_of_slot) * split.parts);
}

}  // namespace lyceum

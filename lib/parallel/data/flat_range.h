#pragma once

#include <cstdint>
#include <vector>

#include "core/range.h"
#include "kernels/flat_blocks.h"

namespace lyceum {

/// Ranges begin at multiples of this many elements: sums over blocks of that size then do not depend on the cut.
constexpr std::int64_t range_block = flat_block;

/// Elements of each rank's part of `size`, in rank order: whole blocks, but for the last one, as evenly as they divide.
/// A rank may get none.
std::vector<std::int64_t> cut_evenly(std::int64_t size, int ranks);
/// One of them.
Range cut_evenly(std::int64_t size, int ranks, int rank);

}  // namespace lyceum

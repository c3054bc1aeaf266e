#pragma once

#include <cstdint>
#include <vector>

#include "core/range.h"

namespace lyceum {

/// Divides `size` elements evenly among the ranks, in whole blocks of flat_block elements (except the last block), so
/// that sums over blocks do not depend on the number of ranks. Returns the number of elements of each rank, in rank
/// order; it may be 0.
std::vector<std::int64_t> cut_evenly(std::int64_t size, int ranks);
/// Returns the range of one rank.
Range cut_evenly(std::int64_t size, int ranks, int rank);
/// Returns `size` rounded up so that cut_evenly() makes parts of equal size, which NCCL can reduce and gather in a
/// single operation. Returns `size` itself for one rank, or if the padding would exceed size / 16.
std::int64_t padded_for_ranks(std::int64_t size, int ranks);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <vector>

#include "core/range.h"

namespace lyceum {

/// Elements of each rank's part of `size`, in rank order: whole blocks of flat_block, but for the last one, as evenly
/// as they divide, so that sums over blocks do not depend on the cut. A rank may get none.
std::vector<std::int64_t> cut_evenly(std::int64_t size, int ranks);
/// One of them.
Range cut_evenly(std::int64_t size, int ranks, int rank);
/// `size` with so much padding behind it that cut_evenly() makes equal parts, which NCCL reduces and gathers in a
/// single operation; `size` itself where the padding would be more than a sixteenth of it.
std::int64_t padded_for_ranks(std::int64_t size, int ranks);

}  // namespace lyceum

#include "parallel/data/flat_range.h"

#include <algorithm>

#include "core/round_up.h"
#include "kernels/flat_blocks.h"

namespace lyceum {

Range cut_evenly(std::int64_t size, int ranks, int rank) {
  const std::int64_t blocks = flat_blocks_of(size);
  const auto begin = [&](int part) { return std::min(size, blocks * part / ranks * flat_block); };
  return {begin(rank), begin(rank + 1) - begin(rank)};
}

std::int64_t padded_for_ranks(std::int64_t size, int ranks) {
  const std::int64_t equal = ranks * flat_block, padded = round_up(size, equal);
  return ranks > 1 && padded - size <= size / 16 ? padded : size;
}

std::vector<std::int64_t> cut_evenly(std::int64_t size, int ranks) {
  std::vector<std::int64_t> extents;
  for (int rank = 0; rank < ranks; ++rank) extents.push_back(cut_evenly(size, ranks, rank).count);
  return extents;
}

}  // namespace lyceum

#include "parallel/data/flat_range.h"

#include <algorithm>

namespace lyceum {

std::vector<std::int64_t> cut_evenly(std::int64_t size, int ranks) {
  const std::int64_t blocks = (size + range_block - 1) / range_block;
  const auto begin = [&](int rank) { return std::min(size, blocks * rank / ranks * range_block); };
  std::vector<std::int64_t> extents;
  for (int rank = 0; rank < ranks; ++rank) extents.push_back(begin(rank + 1) - begin(rank));
  return extents;
}

}  // namespace lyceum

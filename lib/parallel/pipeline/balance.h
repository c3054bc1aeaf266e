#pragma once

#include <span>
#include <vector>

namespace lyceum {

/// The contiguous partition of blocks into `stages` whose most costly stage is the least costly possible; of those the
/// one with the most even stages (least sum of squares), then with the earliest cuts. `first` and `last` are added to
/// the first and the last stage: embedding and head. Result [stages + 1]: stage s has blocks [r[s], r[s + 1]), at least
/// one. Exact: time O(blocks² · stages). Throws a usage Error where there are more stages than blocks.
std::vector<int> balance_stages(std::span<const double> block_costs, int stages, double first = 0, double last = 0);

}  // namespace lyceum

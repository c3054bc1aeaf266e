#pragma once

#include <span>
#include <vector>

namespace lyceum {

/// Divides blocks into `stages` contiguous stages so that the cost of the most expensive stage is minimal. Among such
/// partitions it returns the most even one (least sum of squares), then the one with the earliest cuts. `first` and
/// `last` are added to the costs of the first and the last stage (embedding and head). Returns r [stages + 1]: stage s
/// has the blocks [r[s], r[s + 1]), at least one. Exact, in time O(blocks² · stages). Throws a usage Error if there are
/// more stages than blocks, and an Error if a cost is negative or not finite.
std::vector<int> balance_stages(std::span<const double> block_costs, int stages, double first = 0, double last = 0);

}  // namespace lyceum

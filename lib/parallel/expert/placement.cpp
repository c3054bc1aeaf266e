#include "parallel/expert/placement.h"

#include "core/error.h"

namespace lyceum {

Placement Placement::contiguous(std::int64_t experts, int ranks) {
  require_usage(experts >= ranks && ranks > 0, "{} experts over {} ranks: every rank needs one; lower parallel.expert",
                experts, ranks);
  Placement placement;
  placement.first.push_back(0);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t count = experts / ranks + (rank < experts % ranks ? 1 : 0);
    placement.owner.insert(placement.owner.end(), static_cast<std::size_t>(count), rank);
    placement.first.push_back(placement.first.back() + count);
  }
  for (std::int64_t e = 0; e < experts; ++e) placement.order.push_back(static_cast<std::int32_t>(e));
  return placement;
}

std::vector<std::int32_t> Placement::experts_of(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return {order.begin() + first[r], order.begin() + first[r + 1]};
}

}  // namespace lyceum

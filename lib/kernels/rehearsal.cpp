#include <numeric>

#include "kernels/permute.h"

namespace lyceum {

void run(const RehearsalStream&, const SortByExpert& sort) {
  const auto pairs = static_cast<std::int64_t>(sort.slot_pair.size());
  const auto experts = static_cast<std::int64_t>(sort.order.size());
  for (std::int64_t p = 0; p <= experts; ++p) sort.begin[static_cast<std::size_t>(p)] = pairs * p / experts;
  std::iota(sort.slot_pair.begin(), sort.slot_pair.end(), std::int64_t{0});
  std::iota(sort.pair_slot.begin(), sort.pair_slot.end(), std::int64_t{0});
}

}  // namespace lyceum

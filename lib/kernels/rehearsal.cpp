#include "kernels/permute.h"

namespace lyceum {

void run(const RehearsalStream&, const SortByExpert& sort) {
  const auto pairs = static_cast<std::int64_t>(sort.slot_pair.size());
  const auto experts = static_cast<std::int64_t>(sort.order.size());
  for (std::int64_t p = 0; p <= experts; ++p) {  // where they do not divide, the first have more
    sort.begin[static_cast<std::size_t>(p)] = (pairs * p + sort.choices() - 1) / sort.choices();
  }
}

}  // namespace lyceum

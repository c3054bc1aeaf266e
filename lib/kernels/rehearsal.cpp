#include <algorithm>
#include <cmath>

#include "kernels/choices.h"
#include "kernels/permute.h"

namespace lyceum {

namespace {

/// Rounds a sum of average counts up to a whole number. A sum that exceeds a whole number only by rounding errors is
/// not rounded up.
std::int64_t rounded_up(double sum) { return static_cast<std::int64_t>(std::ceil(sum - 1e-6)); }

}  // namespace

void run(const RehearsalStream&, const SortByExpert& sort) {
  const auto pairs = static_cast<std::int64_t>(sort.slot_pair.size());
  const double each = static_cast<double>(pairs) / static_cast<double>(sort.choices());
  double sum = 0;
  sort.begin[0] = 0;
  for (std::size_t p = 0; p < sort.order.size(); ++p) {
    sum += sort.expected.empty() ? each : sort.expected[p];
    sort.begin[p + 1] = std::min(pairs, rounded_up(sum));
  }
}

void run(const RehearsalStream&, const MapChoices& map) {
  double sum = 0;
  for (std::size_t p = 0; p < map.count.size(); ++p) {
    const std::int64_t before = rounded_up(sum);
    sum += map.expected[p];
    map.count[p] = rounded_up(sum) - before;
  }
}

}  // namespace lyceum

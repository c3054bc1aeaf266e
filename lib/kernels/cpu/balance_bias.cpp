#include "kernels/balance_bias.h"

#include <vector>

#include "kernels/router_checks.h"

namespace lyceum {

template <class A>
void run(const CpuStream&, const BalanceBias<A>& balance) {
  require_fitting(balance);
  if (balance.verdict[0].skip != 0) return;
  const std::int64_t experts = balance.counts.cols;
  std::vector<std::int64_t> count(static_cast<std::size_t>(experts), 0);
  std::int64_t all = 0;
  for (std::int64_t j = 0; j < balance.counts.rows; ++j) {
    for (std::size_t e = 0; e < count.size(); ++e) {
      count[e] += balance.counts.row(j)[e];
      all += balance.counts.row(j)[e];
    }
  }
  for (std::size_t e = 0; e < count.size(); ++e) {
    const std::int64_t own = count[e] * experts;
    balance.bias[e] += static_cast<A>(balance.rate) * static_cast<A>((all > own) - (all < own));
  }
}

LYCEUM_BALANCE_BIAS_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

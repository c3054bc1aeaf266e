#include "kernels/balance.h"

#include <utility>

#include "kernels/balance_checks.h"

namespace lyceum {

namespace {

/// The two losses of one sequence, and its slopes.
template <class A>
std::pair<double, double> sequence_losses(const BalanceLosses<A>& balance, std::int64_t sequence) {
  const A* count = balance.count.row(sequence);
  const A* probability = balance.probability.row(sequence);
  const auto tokens = static_cast<double>(balance.seq_len);
  const double scale = static_cast<double>(balance.count.cols) / (static_cast<double>(balance.top_k) * tokens);
  double expert_loss = 0, device_loss = 0;
  for (std::size_t device = 0; device + 1 < balance.first.size(); ++device) {
    const auto begin = static_cast<std::size_t>(balance.first[device]);
    const std::span held = balance.order.subspan(begin, static_cast<std::size_t>(balance.first[device + 1]) - begin);
    double mean_f = 0, sum_p = 0;
    for (const std::int32_t i : held) {
      const double f = scale * count[i], p = probability[i];
      expert_loss += f * p;
      balance.expert_slope.row(sequence)[i] = static_cast<A>(balance.expert_factor * f / tokens);
      mean_f += f / static_cast<double>(held.size());
      sum_p += p;
    }
    device_loss += mean_f * sum_p;
    for (const std::int32_t i : held) {
      balance.device_slope.row(sequence)[i] = static_cast<A>(balance.device_factor * mean_f / tokens);
    }
  }
  return {balance.expert_factor * expert_loss, balance.device_factor * device_loss};
}

}  // namespace

template <class A>
void run(const CpuStream&, const BalanceLosses<A>& balance) {
  require_fitting(balance);
  double expert_loss = 0, device_loss = 0;
  for (std::int64_t s = 0; s < balance.count.rows; ++s) {
    const auto [of_experts, of_devices] = sequence_losses(balance, s);
    expert_loss += of_experts;
    device_loss += of_devices;
  }
  balance.expert_loss[0] = static_cast<A>(expert_loss);
  balance.device_loss[0] = static_cast<A>(device_loss);
}

template <class A>
void run(const CpuStream&, const MixSlopes<A>& mix) {
  require_fitting(mix);
  const A by_a = mix.by_a.empty() ? A{0} : mix.by_a[0], by_b = mix.by_b.empty() ? A{0} : mix.by_b[0];
  for (std::size_t i = 0; i < mix.y.size(); ++i) mix.y[i] = by_a * mix.a[i] + by_b * mix.b[i];
}

template <class A>
void run(const CpuStream&, const SpreadMean<A>& spread) {
  require_fitting(spread);
  for (std::int64_t r = 0; r < spread.y.rows; ++r) {
    for (std::int64_t c = 0; c < spread.y.cols; ++c) {
      spread.y.row(r)[c] = static_cast<A>(spread.sums[static_cast<std::size_t>(c)] / spread.sums.back());
    }
  }
}

template <class A>
void run(const CpuStream&, const ScaleRows<A>& scale) {
  require_fitting(scale);
  const double factor = scale.scale * static_cast<double>(scale.factor[0]);
  for (std::int64_t r = 0; r < scale.x.rows; ++r) {
    const auto by = static_cast<A>(factor * scale.row[static_cast<std::size_t>(r)]);
    for (std::int64_t c = 0; c < scale.x.cols; ++c) scale.x.row(r)[c] *= by;
  }
}

template void run(const CpuStream&, const BalanceLosses<float>&);
template void run(const CpuStream&, const BalanceLosses<double>&);
template void run(const CpuStream&, const MixSlopes<float>&);
template void run(const CpuStream&, const MixSlopes<double>&);
template void run(const CpuStream&, const SpreadMean<float>&);
template void run(const CpuStream&, const SpreadMean<double>&);
template void run(const CpuStream&, const ScaleRows<float>&);
template void run(const CpuStream&, const ScaleRows<double>&);

}  // namespace lyceum

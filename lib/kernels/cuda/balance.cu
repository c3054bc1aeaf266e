#include "kernels/balance_checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int threads = 256;

/// The two losses of one sequence, and its slopes: one thread's work.
template <class A>
__device__ void sequence_losses(const BalanceLosses<A>& balance, std::int64_t s, double& expert_loss,
                                double& device_loss) {
  const A* count = balance.count.row(s);
  const A* probability = balance.probability.row(s);
  const auto tokens = static_cast<double>(balance.seq_len);
  const double scale = static_cast<double>(balance.count.cols) / (static_cast<double>(balance.top_k) * tokens);
  double of_experts = 0, of_devices = 0;
  for (std::size_t device = 0; device + 1 < balance.first.size(); ++device) {
    const std::int64_t begin = balance.first[device], end = balance.first[device + 1];
    double mean_f = 0, sum_p = 0;
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int32_t i = balance.order[at];
      const double f = scale * count[i], p = probability[i];
      of_experts += f * p;
      balance.expert_slope.row(s)[i] = static_cast<A>(balance.expert_factor * f / tokens);
      mean_f += f / static_cast<double>(end - begin);
      sum_p += p;
    }
    of_devices += mean_f * sum_p;
    for (std::int64_t at = begin; at < end; ++at) {
      balance.device_slope.row(s)[balance.order[at]] = static_cast<A>(balance.device_factor * mean_f / tokens);
    }
  }
  expert_loss += balance.expert_factor * of_experts;
  device_loss += balance.device_factor * of_devices;
}

/// One block, a thread a sequence.
template <class A>
__global__ void __launch_bounds__(threads) balance_losses(BalanceLosses<A> balance) {
  double expert_loss = 0, device_loss = 0;
  for (std::int64_t s = threadIdx.x; s < balance.count.rows; s += threads) {
    sequence_losses(balance, s, expert_loss, device_loss);
  }
  expert_loss = join_block<threads>(expert_loss, Sum{});
  device_loss = join_block<threads>(device_loss, Sum{});
  if (threadIdx.x != 0) return;
  balance.expert_loss[0] = static_cast<A>(expert_loss);
  balance.device_loss[0] = static_cast<A>(device_loss);
}

/// f(i) for every i below count.
template <class F>
__device__ void for_each(std::int64_t count, const F& f) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride) f(i);
}

template <class A>
__global__ void __launch_bounds__(threads) mix_slopes(MixSlopes<A> mix) {
  const A by_a = mix.by_a.empty() ? A{0} : mix.by_a[0], by_b = mix.by_b.empty() ? A{0} : mix.by_b[0];
  for_each(static_cast<std::int64_t>(mix.y.size()),
           [&](std::int64_t i) { mix.y[i] = by_a * mix.a[i] + by_b * mix.b[i]; });
}

template <class A>
__global__ void __launch_bounds__(threads) spread_mean(SpreadMean<A> spread) {
  const std::int64_t cols = spread.y.cols;
  for_each(spread.y.size(), [&](std::int64_t i) {
    spread.y.row(i / cols)[i % cols] = static_cast<A>(spread.sums[i % cols] / spread.sums[cols]);
  });
}

template <class A>
__global__ void __launch_bounds__(threads) scale_rows(ScaleRows<A> scale) {
  const std::int64_t cols = scale.x.cols;
  const double factor = scale.scale * static_cast<double>(scale.factor[0]);
  for_each(scale.x.size(),
           [&](std::int64_t i) { scale.x.row(i / cols)[i % cols] *= static_cast<A>(factor * scale.row[i / cols]); });
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const BalanceLosses<A>& balance) {
  require_fitting(balance);
  start(stream, "BalanceLosses", balance_losses<A>, 1, threads, balance);
}

template <class A>
void run(const CudaStream& stream, const MixSlopes<A>& mix) {
  require_fitting(mix);
  start(stream, "MixSlopes", mix_slopes<A>, blocks_for(std::ssize(mix.y), threads), threads, mix);
}

template <class A>
void run(const CudaStream& stream, const SpreadMean<A>& spread) {
  require_fitting(spread);
  start(stream, "SpreadMean", spread_mean<A>, blocks_for(spread.y.size(), threads), threads, spread);
}

template <class A>
void run(const CudaStream& stream, const ScaleRows<A>& scale) {
  require_fitting(scale);
  start(stream, "ScaleRows", scale_rows<A>, blocks_for(scale.x.size(), threads), threads, scale);
}

template void run(const CudaStream&, const BalanceLosses<float>&);
template void run(const CudaStream&, const BalanceLosses<double>&);
template void run(const CudaStream&, const MixSlopes<float>&);
template void run(const CudaStream&, const MixSlopes<double>&);
template void run(const CudaStream&, const SpreadMean<float>&);
template void run(const CudaStream&, const SpreadMean<double>&);
template void run(const CudaStream&, const ScaleRows<float>&);
template void run(const CudaStream&, const ScaleRows<double>&);

}  // namespace lyceum

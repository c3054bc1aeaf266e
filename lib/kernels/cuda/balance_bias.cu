#include "kernels/balance_bias.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/router_checks.h"

namespace lyceum {

namespace {

constexpr int balance_bias_threads = 256;

/// One thread block. Its threads first sum all counts, which are integers, then each updates the biases of its experts.
template <class A>
__global__ void __launch_bounds__(balance_bias_threads) balance_bias(BalanceBias<A> balance) {
  __shared__ unsigned long long all;
  if (balance.verdict[0].skip != 0) return;
  const std::int64_t experts = balance.counts.cols;
  const auto count_of = [&](std::int64_t e) {
    std::int64_t count = 0;
    for (std::int64_t j = 0; j < balance.counts.rows; ++j) count += balance.counts.row(j)[e];
    return count;
  };
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  for (std::int64_t e = threadIdx.x; e < experts; e += balance_bias_threads) {
    atomicAdd(&all, static_cast<unsigned long long>(count_of(e)));
  }
  __syncthreads();
  const auto sum = static_cast<std::int64_t>(all);
  for (std::int64_t e = threadIdx.x; e < experts; e += balance_bias_threads) {
    const std::int64_t own = count_of(e) * experts;
    balance.bias[e] += static_cast<A>(balance.rate) * static_cast<A>((sum > own) - (sum < own));
  }
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const BalanceBias<A>& balance) {
  require_fitting(balance);
  start(stream, "BalanceBias", balance_bias<A>, 1, balance_bias_threads, balance);
}

LYCEUM_BALANCE_BIAS_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

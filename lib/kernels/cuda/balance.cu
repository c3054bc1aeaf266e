#include "kernels/balance_checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int balance_threads = 512, balance_warps = balance_threads / warp_size;

struct Losses {
  double expert, device, squares, entropies, of_mean;  // of_mean: entropy of the mean probability, H(P)

  __device__ void operator+=(const Losses& other) {
    expert += other.expert;
    device += other.device;
    squares += other.squares;
    entropies += other.entropies;
    of_mean += other.of_mean;
  }
};

/// Returns H(P) of sequence s, the same in all lanes, and writes its slopes −(log P + 1) / T. The slope is 0 if P is 0,
/// since then no token gives that expert any probability. All lanes of a warp must call it. `counted` is the number of
/// sequences whose probabilities row s sums.
__device__ double entropy_of_mean(const BalanceLosses& balance, std::int64_t s, double counted) {
  const auto tokens = static_cast<double>(balance.seq_len);
  double entropy = 0;
  for (std::int64_t i = threadIdx.x % warp_size; i < balance.probability.cols; i += warp_size) {
    const double p = balance.probability.row(s)[i] / (tokens * counted), log_p = p == 0 ? 0 : std::log(p);
    entropy -= p * log_p;
    balance.entropy_slope.row(s)[i] = p == 0 ? 0 : -(log_p + 1) / tokens;
  }
  return join_warp(entropy, Sum{});
}

/// Adds the losses of sequence s, without their factors, to `losses`, and writes its slopes. All lanes of a warp must
/// call it.
__device__ void add_sequence(const BalanceLosses& balance, std::int64_t s, Losses& losses) {
  const std::int64_t experts = balance.count.cols;
  const auto tokens = static_cast<double>(balance.seq_len);
  const double counted = balance.count_of.empty() ? 1 : balance.count_of[0];
  const double k = balance.choices.empty() ? static_cast<double>(balance.top_k) : balance.choices[0];
  const double scale = static_cast<double>(experts) / (k * tokens * counted);
  const double* count = balance.count.row(s);
  const double* sum = balance.sums.row(s);
  double of_experts = 0;
  for (std::size_t device = 0; device + 1 < balance.first.size(); ++device) {
    const std::int64_t begin = balance.first[device], end = balance.first[device + 1];
    double mean_f = 0, sum_p = 0;
    for (std::int64_t at = begin + threadIdx.x % warp_size; at < end; at += warp_size) {
      const std::int32_t i = balance.order[at];
      const double f = scale * count[i], p = sum[i] / tokens;
      of_experts += f * p;
      balance.expert_slope.row(s)[i] = balance.expert_factor * f / tokens;
      mean_f += f / static_cast<double>(end - begin);
      sum_p += p;
    }
    mean_f = join_warp(mean_f, Sum{});
    losses.device += mean_f * join_warp(sum_p, Sum{});
    for (std::int64_t at = begin + threadIdx.x % warp_size; at < end; at += warp_size) {
      balance.device_slope.row(s)[balance.order[at]] = balance.device_factor * mean_f / tokens;
    }
  }
  losses.expert += join_warp(of_experts, Sum{});
  losses.squares += sum[experts];
  losses.entropies += sum[experts + 1];
  if (balance.probability.cols > 0) losses.of_mean += entropy_of_mean(balance, s, counted);
}

/// One thread block; each of its warps processes every balance_warps-th sequence.
__global__ void __launch_bounds__(balance_threads) balance_losses(BalanceLosses balance) {
  __shared__ Losses of_warp[balance_warps];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  Losses own{};
  for (std::int64_t s = warp; s < balance.count.rows; s += balance_warps) add_sequence(balance, s, own);
  if (threadIdx.x % warp_size == 0) of_warp[warp] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < balance_warps; ++w) own += of_warp[w];
  balance.expert_loss[0] = balance.expert_factor * own.expert;
  balance.device_loss[0] = balance.device_factor * own.device;
  balance.z_loss[0] = balance.z_factor / static_cast<double>(balance.seq_len) * own.squares;
  balance.information_loss[0] =
      balance.information_factor * (own.entropies / static_cast<double>(balance.seq_len) - own.of_mean);
  balance.concentration_loss[0] = balance.concentration_factor * own.of_mean;
}

__device__ double value_or_zero(const std::span<const double>& value) { return value.empty() ? 0 : value[0]; }

__global__ void __launch_bounds__(balance_threads) balance_losses_backward(BalanceLossesBackward balance) {
  const std::int64_t experts = balance.expert_slope.cols, cols = balance.d_load.cols;
  const double by_expert = value_or_zero(balance.by_expert), by_device = value_or_zero(balance.by_device);
  const double by_square = balance.z_slope * value_or_zero(balance.by_z);
  const double by_information = value_or_zero(balance.by_information);
  const double by_entropy = balance.information_slope * by_information;
  const double by_mean = balance.concentration_factor * value_or_zero(balance.by_concentration) -
                         balance.information_factor * by_information;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * balance_threads;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * balance_threads + threadIdx.x;
       p < balance.d_load.size(); p += stride) {
    const std::int64_t s = p / cols, c = p % cols, i = c - experts;
    double slope = 0;
    if (i > experts) {
      slope = by_entropy;
    } else if (i == experts) {
      slope = by_square;
    } else if (i >= 0) {
      slope = by_expert * balance.expert_slope.row(s)[i] + by_device * balance.device_slope.row(s)[i];
      if (balance.entropy_slope.cols > 0) slope += by_mean * balance.entropy_slope.row(s)[i];
    }
    balance.d_load.row(s)[c] = slope;
  }
}

}  // namespace

void run(const CudaStream& stream, const BalanceLosses& balance) {
  require_fitting(balance);
  start(stream, "BalanceLosses", balance_losses, 1, balance_threads, balance);
}

void run(const CudaStream& stream, const BalanceLossesBackward& balance) {
  require_fitting(balance);
  start(stream, "BalanceLossesBackward", balance_losses_backward, blocks_for(balance.d_load.size(), balance_threads),
        balance_threads, balance);
}

}  // namespace lyceum

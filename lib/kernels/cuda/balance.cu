#include "kernels/balance_checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int balance_threads = 512, balance_warps = balance_threads / warp_size;

struct Losses {
  double expert, device, squares;
};

/// Adds the losses of one sequence, without their factors, and writes its slopes: a warp's work.
__device__ void add_sequence(const BalanceLosses& balance, std::int64_t s, Losses& losses) {
  const std::int64_t experts = balance.count.cols;
  const auto tokens = static_cast<double>(balance.seq_len);
  const double counted = balance.count_of.empty() ? 1 : balance.count_of[0];
  const double scale = static_cast<double>(experts) / (static_cast<double>(balance.top_k) * tokens * counted);
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
}

/// One block, a warp a sequence.
__global__ void __launch_bounds__(balance_threads) balance_losses(BalanceLosses balance) {
  __shared__ Losses of_warp[balance_warps];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  Losses own{};
  for (std::int64_t s = warp; s < balance.count.rows; s += balance_warps) add_sequence(balance, s, own);
  if (threadIdx.x % warp_size == 0) of_warp[warp] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < balance_warps; ++w) {
    own.expert += of_warp[w].expert;
    own.device += of_warp[w].device;
    own.squares += of_warp[w].squares;
  }
  balance.expert_loss[0] = balance.expert_factor * own.expert;
  balance.device_loss[0] = balance.device_factor * own.device;
  balance.z_loss[0] = balance.z_factor / static_cast<double>(balance.seq_len) * own.squares;
}

__device__ double value_or_zero(const std::span<const double>& value) { return value.empty() ? 0 : value[0]; }

__global__ void __launch_bounds__(balance_threads) balance_losses_backward(BalanceLossesBackward balance) {
  const std::int64_t experts = balance.expert_slope.cols, cols = balance.d_load.cols;
  const double by_expert = value_or_zero(balance.by_expert), by_device = value_or_zero(balance.by_device);
  const double by_square = balance.z_slope * value_or_zero(balance.by_z);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * balance_threads;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * balance_threads + threadIdx.x;
       p < balance.d_load.size(); p += stride) {
    const std::int64_t s = p / cols, c = p % cols, i = c - experts;
    balance.d_load.row(s)[c] =
        i < 0          ? 0
        : i == experts ? by_square
                       : by_expert * balance.expert_slope.row(s)[i] + by_device * balance.device_slope.row(s)[i];
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

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Expert-level and device-level balance losses of sequences [DeepSeekMoE eq. 12–17] and the router z-loss [Zoph et al.
/// 2022], each summed over the sequences. With E experts, k choices and T tokens a sequence, f_i = E/(k·T) · count_i,
/// P_i = (sum of the scores of i) / T:
///   α₁ Σ_i f_i P_i,    α₂ Σ_d mean_{i∈d}(f_i) Σ_{i∈d} P_i,    α₃/T · Σ_t (log Σ_i exp x_ti)²
/// d: the experts of one device. Only P and the squares have derivatives.
struct BalanceLosses {
  Matrix<const double> count;           // [sequences, experts]: choices that fell on each expert
  std::span<const double> count_of;     // [1]: sequences whose counts were added to each row; or empty: one
  Matrix<const double> sums;            // [sequences, experts + 1]: scores, squared log-sum-exps; see RouteTokens
  std::span<const std::int32_t> order;  // [experts], device by device
  std::span<const std::int64_t>
      first;                    // [devices + 1]: a device's experts are order[first[d]] … order[first[d + 1] − 1]
  std::int64_t top_k, seq_len;  // k, T
  double expert_factor, device_factor, z_factor;       // α₁, α₂, α₃
  Matrix<double> expert_slope, device_slope;           // [sequences, experts]: derivatives by the sum of scores
  std::span<double> expert_loss, device_loss, z_loss;  // [1]
};

/// The gradient of a sum of the three by what RouteTokens adds up, whose counts get zeros.
struct BalanceLossesBackward {
  Matrix<const double> expert_slope, device_slope;     // [sequences, experts]
  double z_slope;                                      // α₃/T
  std::span<const double> by_expert, by_device, by_z;  // [1], or empty: zero
  Matrix<double> d_load;                               // [sequences, load_width(experts)]
};

void run(const CpuStream& stream, const BalanceLosses& balance);
void run(const CpuStream& stream, const BalanceLossesBackward& balance);
void run(const CudaStream& stream, const BalanceLosses& balance);
void run(const CudaStream& stream, const BalanceLossesBackward& balance);

}  // namespace lyceum

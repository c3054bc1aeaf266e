#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Expert-level and device-level balance losses of sequences [DeepSeekMoE eq. 12–17], the router z-loss [Zoph et al.
/// 2022], and the information of the chosen expert about the token [ModuleFormer], each summed over the sequences. With
/// E experts, k choices and T tokens a sequence, f_i = E/(k·T) · count_i, P_i = (sum of the probabilities of i) / T:
///   α₁ Σ_i f_i P_i,    α₂ Σ_d mean_{i∈d}(f_i) Σ_{i∈d} P_i,    α₃/T · Σ_t (log Σ_i exp x_ti)²
///   α₄ (1/T Σ_t H(p_t) − H(P)),    α₅ H(P)    with the entropy H(p) = −Σ_i p_i log p_i
/// d: the experts of one device. The last two take P over as many sequences as the counts. Counts have no derivatives.
struct BalanceLosses {
  Matrix<const double> count;        // [sequences, experts]: choices that fell on each expert
  Matrix<const double> probability;  // [sequences, experts]: sums of probabilities for H(P); or none: α₄ = α₅ = 0
  std::span<const double> count_of;  // [1]: sequences whose counts and probabilities make a row of these; or empty: one
  Matrix<const double>
      sums;  // [sequences, experts + 2]: probabilities, squared log-sum-exps, entropies; see RouteTokens
  std::span<const std::int32_t> order;  // [experts], device by device
  std::span<const std::int64_t>
      first;                    // [devices + 1]: a device's experts are order[first[d]] … order[first[d + 1] − 1]
  std::int64_t top_k, seq_len;  // k, T
  std::span<const double> choices = {};  // [1]: k, where it is not top_k
  double expert_factor, device_factor, z_factor, information_factor, concentration_factor;  // α₁ … α₅
  Matrix<double> expert_slope, device_slope;  // [sequences, experts]: derivatives by the sum of probabilities
  Matrix<double> entropy_slope;               // [sequences, experts]: that of H(P) of all sequences; with probability
  std::span<double> expert_loss, device_loss, z_loss, information_loss, concentration_loss;  // [1]
};

/// The gradient of a sum of the five by what RouteTokens adds up, whose counts get zeros.
struct BalanceLossesBackward {
  Matrix<const double> expert_slope, device_slope;  // [sequences, experts]
  Matrix<const double> entropy_slope;               // [sequences, experts]; or none
  double z_slope, information_slope;                // α₃/T, α₄/T
  double information_factor, concentration_factor;  // α₄, α₅
  std::span<const double> by_expert, by_device, by_z, by_information, by_concentration;  // [1], or empty: zero
  Matrix<double> d_load;  // [sequences, load_width(experts)]
};

void run(const CpuStream& stream, const BalanceLosses& balance);
void run(const CpuStream& stream, const BalanceLossesBackward& balance);
void run(const CudaStream& stream, const BalanceLosses& balance);
void run(const CudaStream& stream, const BalanceLossesBackward& balance);

}  // namespace lyceum

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Computes five losses of a router from its load (see load_width()), each summed over sequences. With E experts, k
/// choices per token, T tokens per sequence, f_i = E/(k·T) · count_i, P_i = (sum of the probabilities of i) / T and the
/// entropy H(p) = −Σ_i p_i log p_i:
///   expert         α₁ Σ_i f_i P_i                               [DeepSeekMoE eq. 12–17]
///   device         α₂ Σ_d mean_{i∈d}(f_i) Σ_{i∈d} P_i           over the experts i of each device d [as above]
///   z              α₃/T · Σ_t (log Σ_i exp x_ti)²               [Zoph et al. 2022]
///   information    α₄ (1/T Σ_t H(p_t) − H(P))                   of the chosen expert about the token [ModuleFormer]
///   concentration  α₅ H(P)
/// Counts have no derivatives. `count` and `probability` may be sums over several sequences (a batch); f and H(P) are
/// then averages over these.
struct BalanceLosses {
  Matrix<const double> count;        // [sequences, experts]: number of choices of each expert
  Matrix<const double> probability;  // [sequences, experts]: sums of probabilities for H(P); or none: α₄ = α₅ = 0
  std::span<const double> count_of;  // [1]: number of sequences summed in each row of count, probability; empty: 1
  /// [sequences, experts + 2]: sums of each expert's probabilities, of squared log-sum-exps, of entropies
  /// (load_width()).
  Matrix<const double> sums;
  /// [experts], [devices + 1]: the experts of device d are order[first[d]] … order[first[d + 1] − 1].
  std::span<const std::int32_t> order;
  std::span<const std::int64_t> first;
  std::int64_t top_k, seq_len;           // k, T
  std::span<const double> choices = {};  // [1], on the device: replaces top_k as k; or none
  double expert_factor, device_factor, z_factor, information_factor, concentration_factor;  // α₁ … α₅
  /// [sequences, experts], for backward: derivatives of the expert and the device loss, and of H(P) if `probability` is
  /// set, with respect to the sums of probabilities.
  Matrix<double> expert_slope, device_slope, entropy_slope;
  std::span<double> expert_loss, device_loss, z_loss, information_loss, concentration_loss;  // [1]
};

/// Computes the gradient with respect to the load from the gradients with respect to the five losses. Counts get 0.
struct BalanceLossesBackward {
  Matrix<const double> expert_slope, device_slope;  // [sequences, experts], from BalanceLosses
  Matrix<const double> entropy_slope;               // [sequences, experts], from BalanceLosses; or none
  double z_slope, information_slope;                // α₃/T, α₄/T
  double information_factor, concentration_factor;  // α₄, α₅
  /// [1] each: the gradients with respect to the five losses; empty: 0.
  std::span<const double> by_expert, by_device, by_z, by_information, by_concentration;
  Matrix<double> d_load;  // [sequences, load_width(experts)]
};

void run(const CpuStream& stream, const BalanceLosses& balance);
void run(const CpuStream& stream, const BalanceLossesBackward& balance);
void run(const CudaStream& stream, const BalanceLosses& balance);
void run(const CudaStream& stream, const BalanceLossesBackward& balance);

}  // namespace lyceum

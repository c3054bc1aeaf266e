#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Expert-level and device-level balance losses of sequences [DeepSeekMoE eq. 12–17], and their derivatives by the
/// score of an expert at any token of the sequence. With E experts and f_i = E/(k·T) · count_i, P_i = probability_i:
///   α₁ Σ_i f_i P_i    and    α₂ Σ_d mean_{i∈d}(f_i) Σ_{i∈d} P_i,    d: the experts of one device
/// A is float or double.
template <class A>
struct BalanceLosses {
  Matrix<const A> count, probability;   // [sequences, experts]: choices that fell on each expert, mean score
  std::span<const std::int32_t> order;  // [experts], device by device
  std::span<const std::int64_t>
      first;                    // [devices + 1]: a device's experts are order[first[d]] … order[first[d + 1] − 1]
  std::int64_t top_k, seq_len;  // k, T
  double expert_factor, device_factor;    // α₁, α₂
  Matrix<A> expert_slope, device_slope;   // [sequences, experts]
  std::span<A> expert_loss, device_loss;  // [1]: sums over the sequences
};

/// y = by_a[0] · a + by_b[0] · b; an empty factor is zero.
template <class A>
struct MixSlopes {
  std::span<const A> a, b;
  std::span<const A> by_a, by_b;  // [1] or empty
  std::span<A> y;
};

/// y[r, c] = sums[c] / sums[cols]: every row the mean, over as many rows as the last sum says.
template <class A>
struct SpreadMean {
  std::span<const double> sums;  // [cols + 1]
  Matrix<A> y;
};

/// x[r, c] *= scale · factor[0] · row[r]
template <class A>
struct ScaleRows {
  Matrix<A> x;
  std::span<const A> row;     // [rows]
  std::span<const A> factor;  // [1]
  double scale;
};

template <class A>
void run(const CpuStream& stream, const BalanceLosses<A>& balance);
template <class A>
void run(const CpuStream& stream, const MixSlopes<A>& mix);
template <class A>
void run(const CpuStream& stream, const SpreadMean<A>& spread);
template <class A>
void run(const CpuStream& stream, const ScaleRows<A>& scale);

template <class A>
void run(const CudaStream& stream, const BalanceLosses<A>& balance);
template <class A>
void run(const CudaStream& stream, const MixSlopes<A>& mix);
template <class A>
void run(const CudaStream& stream, const SpreadMean<A>& spread);
template <class A>
void run(const CudaStream& stream, const ScaleRows<A>& scale);

}  // namespace lyceum

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// One AdamW step over a flat range [Loshchilov & Hutter 2019]; T is the type of the weights that the model reads.
///   g = gradient · gradient_scale · clip;  m = β₁m + (1−β₁)g;  v = β₂v + (1−β₂)g²
///   master −= lr · (m / bias1 / (√(v / bias2) + eps) + weight_decay · master);  weight = master rounded to T
template <class T>
struct AdamWStep {
  std::span<Accumulator<T>> master;  // f32 (f64) weights; may be `weight` itself where T is the same type
  std::span<Accumulator<T>> exp_avg, exp_avg_sq;
  std::span<const Accumulator<T>> gradient;
  std::span<T> weight;
  double gradient_scale;
  double lr, beta1, beta2, eps, weight_decay;
  double bias1, bias2;                // 1 − βⁿ at step n
  std::span<const double> clip = {};  // empty, or one more factor of the gradient, where the kernel runs
};

/// Σ x² in double of each block of `block` elements, the last one perhaps shorter; the order of summation depends on
/// nothing else. NaN and infinity stay visible.
template <class A>
struct SumOfSquares {
  std::span<const A> x;
  std::int64_t block;
  std::span<double> sums;  // [⌈x.size() / block⌉]
};

template <class T>
void run(const CpuStream& stream, const AdamWStep<T>& step);
template <class A>
void run(const CpuStream& stream, const SumOfSquares<A>& norm);

template <class T>
void run(const CudaStream& stream, const AdamWStep<T>& step);
template <class A>
void run(const CudaStream& stream, const SumOfSquares<A>& norm);

}  // namespace lyceum

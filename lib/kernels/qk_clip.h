#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// y[h] = the largest of y[h] and column h of x. NaNs in x are ignored.
template <class A>
struct RaiseToColumns {
  Matrix<const A> x;    // [rows, cols]
  std::span<double> y;  // [cols]
};

/// The factors by which QK-clip [Kimi K2, section 2.1] scales the weights of queries and keys. For each head of keys g,
/// with S the largest logit of the query heads that share it: γ = threshold / S if S > threshold, else 1. Weights of
/// queries and keys multiplied by √γ each make its logits γ times as large. A logit that is NaN or infinite gives 1;
/// the step is skipped then. HeadScaling states which weights a factor applies to.
struct QkClipFactors {
  std::span<const double> largest;  // [key heads · group]: largest scaled logit of each query head; −∞ if it has none
  std::int64_t group;               // number of query heads per key head; adjacent query heads share a key head
  double threshold;                 // > 0
  std::span<double> factors;        // [2 · key heads]: √γ of all key heads, then γ of all key heads
};

template <class A>
void run(const CpuStream& stream, const RaiseToColumns<A>& raise);
void run(const CpuStream& stream, const QkClipFactors& clip);

template <class A>
void run(const CudaStream& stream, const RaiseToColumns<A>& raise);
void run(const CudaStream& stream, const QkClipFactors& clip);

#define LYCEUM_QK_CLIP_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, RaiseToColumns)

}  // namespace lyceum

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/weight_update.h"

namespace lyceum {

/// One step of an exponential moving average of weights: average += (1 − decay) · (weights − average). Leaves the
/// average unchanged if the verdict skips the update. Weights that do not change keep an average that equals them,
/// without rounding errors. A is float or double.
template <class A>
struct AverageWeights {
  std::span<const A> weights;            // [count]
  std::span<A> average;                  // [count]
  double decay;                          // 0 ≤ decay < 1
  std::span<const StepVerdict> verdict;  // [1]
};

template <class A>
void run(const CpuStream& stream, const AverageWeights<A>& step);
template <class A>
void run(const CudaStream& stream, const AverageWeights<A>& step);

#define LYCEUM_WEIGHT_AVERAGE_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, AverageWeights)

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/weight_update.h"

namespace lyceum {

/// Updates the selection bias of a router: bias_e += rate · sign(mean count of all experts − count_e), where count_e is
/// the sum of column e of `counts`. Leaves the bias unchanged if the step is skipped [DeepSeek-V3 §2.1.2]. A is float
/// or double.
template <class A>
struct BalanceBias {
  Matrix<const std::int64_t> counts;  // [k, experts]: number of tokens whose j-th choice is expert e
  std::span<A> bias;                  // [experts]
  double rate;
  std::span<const StepVerdict> verdict;  // [1]
};

template <class A>
void run(const CpuStream& stream, const BalanceBias<A>& balance);
template <class A>
void run(const CudaStream& stream, const BalanceBias<A>& balance);

#define LYCEUM_BALANCE_BIAS_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, BalanceBias)

}  // namespace lyceum

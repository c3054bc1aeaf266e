#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/routing_policy.h"

namespace lyceum {

/// Gradient of RouteTokens by the logits, from the gradients of its gates and load. Counts of choices have no
/// derivative: the first `experts` columns of d_load are ignored. All other members are as in RouteTokens.
template <class A>
struct RouteTokensBackward {
  Matrix<const A> logits, norms;     // [tokens, experts], [tokens, 2]
  Matrix<const std::int32_t> index;  // [tokens, k]
  Matrix<const A> d_gates;           // [tokens, k], or none: zero
  Matrix<const double> d_load;       // [sequences, load_width(experts)], or none: zero
  Scores scores = Scores::softmax;
  Gates rule = Gates::raw;
  double gate_scale = 1;
  std::span<const double> choices = {};
  bool entropy = false;
  std::int64_t seq_len = 1, first = 0;
  Matrix<A> d_logits;  // [tokens, experts]
};

template <class A>
void run(const CpuStream& stream, const RouteTokensBackward<A>& route);
template <class A>
void run(const CudaStream& stream, const RouteTokensBackward<A>& route);

#define LYCEUM_ROUTER_BACKWARD_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, RouteTokensBackward)

}  // namespace lyceum

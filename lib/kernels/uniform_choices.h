#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// Names the random experts of one router. They are a pure function of seed, layer, step and token. They therefore
/// depend neither on the mesh nor on the division into micro-batches, and recomputation gets the same experts.
struct UniformDraw {
  std::uint64_t seed;
  std::int64_t layer;                 // in [0, 2^16)
  std::int64_t first;                 // index of row 0's token; in [0, 2^48)
  std::int64_t period = 0;            // > 0: token t draws as token t mod period does; 0: every token draws for itself
  std::span<const double> step = {};  // [1], in memory of the stream's device: a whole number below 2^32; none: 0
};

/// Uniform routing: each token gets k different experts, and all sets of k experts are equally likely [Zuo et al.
/// 2022]. A is float or double.
template <class A>
struct UniformChoices {
  UniformDraw draw;
  std::int64_t experts;
  double gate;                     // value of all gates
  Matrix<std::int32_t> index;      // [tokens, k]: the experts of a token, in the order in which they are drawn
  Matrix<A> gates;                 // [tokens, k]
  Matrix<std::int64_t> counts;     // [k, experts], or none: += number of tokens whose j-th choice is that expert
  std::span<double> probability;   // [experts], or none: += tokens / experts
  std::span<double> entropy = {};  // [1], or none: += tokens · log experts
};

template <class A>
void run(const CpuStream& stream, const UniformChoices<A>& choices);
template <class A>
void run(const CudaStream& stream, const UniformChoices<A>& choices);

#define LYCEUM_UNIFORM_CHOICES_KERNELS(INSTANCE) LYCEUM_ACCUMULATORS(INSTANCE, UniformChoices)

}  // namespace lyceum

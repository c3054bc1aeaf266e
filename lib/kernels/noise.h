#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// Standard normal numbers ε of tokens and columns: each a pure function of seed, layer, step, token and column, so
/// that they depend neither on the mesh nor on how a batch is cut, and come again where a pass is made again.
struct TokenNoise {
  std::uint64_t seed;
  std::int64_t layer;            // below 2^16
  std::int64_t first;            // token of row 0, counted through the batch of the step; below 2^48
  std::span<const double> step;  // [1], a whole number below 2^32, where the kernel runs
};

/// y = x + ε ⊙ softplus(scale); y may be x. A is float or double.
template <class A>
struct AddNoise {
  Matrix<const A> x, scale;  // [tokens, columns]
  Matrix<A> y;               // [tokens, columns]
  TokenNoise noise;
};

/// d_scale = dy ⊙ ε ⊙ σ(scale); d_scale may be dy.
template <class A>
struct AddNoiseBackward {
  Matrix<const A> scale, dy;  // [tokens, columns]
  Matrix<A> d_scale;          // [tokens, columns]
  TokenNoise noise;
};

template <class A>
void run(const CpuStream& stream, const AddNoise<A>& add);
template <class A>
void run(const CpuStream& stream, const AddNoiseBackward<A>& add);

template <class A>
void run(const CudaStream& stream, const AddNoise<A>& add);
template <class A>
void run(const CudaStream& stream, const AddNoiseBackward<A>& add);

#define LYCEUM_NOISE_KERNELS(INSTANCE)    \
  LYCEUM_ACCUMULATORS(INSTANCE, AddNoise) \
  LYCEUM_ACCUMULATORS(INSTANCE, AddNoiseBackward)

}  // namespace lyceum

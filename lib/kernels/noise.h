#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// Describes a matrix of standard normal random numbers ε, one per token and column. Each ε is a pure function of seed,
/// layer, step, token and column. It therefore depends neither on the mesh nor on the division into micro-batches, and
/// recomputation gets the same numbers.
struct TokenNoise {
  std::uint64_t seed;
  std::int64_t layer;            // in [0, 2^16)
  std::int64_t first;            // index of row 0's token in the batch of the whole step; in [0, 2^48)
  std::span<const double> step;  // [1], in memory of the stream's device: a whole number below 2^32
};

/// y = x + ε ⊙ softplus(scale), noise with a learnt standard deviation. y may be x. A is float or double.
template <class A>
struct AddNoise {
  Matrix<const A> x, scale;  // [tokens, columns]
  Matrix<A> y;               // [tokens, columns]
  TokenNoise noise;
};

/// Gradient of AddNoise: d_scale = dy ⊙ ε ⊙ σ(scale), with the ε of the forward pass. d_scale may be dy.
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

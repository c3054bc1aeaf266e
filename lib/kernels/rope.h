#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// Computes the table of rotary position embedding [Su et al. 2021]: table[p, i] = cos(p · base^(−2i/dim)) and
/// table[p, dim/2 + i] = sin(p · base^(−2i/dim)) for i < dim/2. dim must be even.
template <class A>
struct RopeTable {
  Matrix<A> table;  // [positions, dim]
  double base;
};

/// Rotates the pairs (x_i, x_{i + dim/2}) of every head in place (the half-split convention, not the interleaved one).
/// `inverse` rotates in the opposite direction, which computes the gradient.
template <class T>
struct Rope {
  Matrix<T> x;                         // [sequences · seq_len, heads · dim]
  Matrix<const Accumulator<T>> table;  // [≥ first_position + seq_len, dim]
  std::int64_t seq_len;                // rows per sequence
  std::int64_t first_position = 0;     // position of the first row of each sequence
  bool inverse = false;
  /// [rows of x], or empty for sequences of one document. The offset in its sequence at which a row's document begins
  /// (see FirstKeys); it is subtracted from the row's position, so positions count from 0 in each document.
  std::span<const std::int32_t> first_keys = {};
};

template <class A>
void run(const CpuStream& stream, const RopeTable<A>& rope);
template <class T>
void run(const CpuStream& stream, const Rope<T>& rope);

template <class A>
void run(const CudaStream& stream, const RopeTable<A>& rope);
template <class T>
void run(const CudaStream& stream, const Rope<T>& rope);

#define LYCEUM_ROPE_KERNELS(INSTANCE)      \
  LYCEUM_ACCUMULATORS(INSTANCE, RopeTable) \
  LYCEUM_FLOATS(INSTANCE, Rope)

}  // namespace lyceum

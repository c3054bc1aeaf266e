#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// Cosines and sines of rotary position embedding: table[p, i] = (cos, sin)(p · base^(−2i/dim)), as two halves of a
/// row. [Su et al. 2021]
template <class A>
struct RopeTable {
  Matrix<A> table;  // [positions, dim]: cos in the first dim/2 columns, sin in the others
  double base;
};

/// Rotates, in place, the pairs (x_i, x_{i + dim/2}) of every head: the half-split kind. `inverse` turns back, which is
/// the gradient.
template <class T>
struct Rope {
  Matrix<T> x;                         // [sequences · seq_len, heads · dim]
  Matrix<const Accumulator<T>> table;  // [≥ first_position + seq_len, dim]
  std::int64_t seq_len;                // rows of one sequence
  std::int64_t first_position = 0;     // of a sequence's first row
  bool inverse = false;
  /// [rows of x]: the row of its sequence at which a row's document begins, where positions count from 0 again, see
  /// FirstKeys. Empty: 0 for all.
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

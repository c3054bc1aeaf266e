#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/rope_scaling.h"

namespace lyceum {

/// Computes the table of rotary position embedding [Su et al. 2021] for n pairs of columns: table[p, i] = a · cos(p ·
/// f_i) and table[p, n + i] = a · sin(p · f_i) for i < n, with f_i = rope_frequency() and a = scaling.attention_factor.
/// Angles are computed in double.
template <class A>
struct RopeTable {
  Matrix<A> table;  // [positions, 2n]
  double base;
  RopeScaling scaling = {};
  /// Number of dimensions over which frequencies are spread: 2n, or 2n − 1 if a head has an odd number of rotated
  /// dimensions. 0: 2n.
  std::int64_t dim = 0;
};

/// Rotates 2n adjacent columns of every head in place: n pairs of columns, placed as `layout` says, by the angles of a
/// RopeTable. The other columns of a head are unchanged. `inverse` transposes the rotation, which computes the
/// gradient.
template <class T>
struct Rope {
  Matrix<T> x;                         // [sequences · seq_len, heads · head_dim]
  Matrix<const Accumulator<T>> table;  // [≥ first_position + seq_len, 2n]
  std::int64_t seq_len;                // rows per sequence
  std::int64_t first_position = 0;     // position of the first row of each sequence
  bool inverse = false;
  /// [rows of x], or empty for sequences of one document. The offset in its sequence at which a row's document begins
  /// (see FirstKeys); it is subtracted from the row's position, so positions count from 0 in each document.
  std::span<const std::int32_t> first_keys = {};
  std::int64_t head_dim = 0;  // columns of a head, at least first_column + 2n; 0: 2n
  RopeLayout layout = RopeLayout::half;
  std::int64_t first_column = 0;  // the first column of a head that is rotated
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

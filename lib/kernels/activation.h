#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "kernels/activation_kind.h"
#include "kernels/instances.h"
#include "kernels/segments.h"

namespace lyceum {

/// The activation between the two products of an FFN, for a bank of experts whose widths may differ. Padding rows of y
/// become zero. With `bias`, x_e + bias_e takes the place of x_e; it is not rounded to T.
///   swiglu          y = silu(gate) ⊙ up, where a row of x is [gate | up]
///   gelu            y = x · Φ(x), Φ(x) = ½ · (1 + erf(x/√2))
///   clamped_swiglu  y = g · σ(α · g) ⊙ (u + 1), g = min(gate, limit), u = max(−limit, min(up, limit))
template <class T>
struct ActivationForward {
  ActivationFunction function;
  Segments segments;
  SegmentedMatrix<const T> x;  // [rows, inputs_of(kind) · width_e]
  SegmentedMatrix<T> y;        // [rows, width_e]
  SegmentVectors<const T> bias = {};
};

/// One gate for each row of a bank: gate[index[r]] for row r. The gate is 0 if the index is negative, as in padding.
template <class A>
struct RowGates {
  std::span<const std::int64_t> index;  // [segment rows]; non-negative indices are distinct
  std::span<const A> gate;              // [tokens · k]
  std::span<A> d_gate;                  // like gate: the gradient; 0 for a gate that no row uses

  /// True if there are gates.
  constexpr explicit operator bool() const { return d_gate.data() != nullptr; }
};

/// Computes dx for y = activation(x), or for y = gate · activation(x) if `gates` is set, and then also d_gate.
/// Recomputes y, because the weight gradient that follows needs it. y may be the memory of dy. Padding rows of dx and y
/// become zero. The gradient of `bias` is the sum of the rows of dx, see SegmentBiasGrad.
template <class T>
struct ActivationBackward {
  ActivationFunction function;
  Segments segments;
  SegmentedMatrix<const T> x, dy;  // as x and y of ActivationForward
  SegmentedMatrix<T> dx;           // like x
  SegmentedMatrix<T> y;            // like dy
  RowGates<Accumulator<T>> gates = {};
  SegmentVectors<const T> bias = {};  // as in ActivationForward
};

template <class T>
void run(const CpuStream& stream, const ActivationForward<T>& activation);
template <class T>
void run(const CpuStream& stream, const ActivationBackward<T>& activation);

template <class T>
void run(const CudaStream& stream, const ActivationForward<T>& activation);
template <class T>
void run(const CudaStream& stream, const ActivationBackward<T>& activation);

#define LYCEUM_ACTIVATION_KERNELS(INSTANCE)  \
  LYCEUM_FLOATS(INSTANCE, ActivationForward) \
  LYCEUM_FLOATS(INSTANCE, ActivationBackward)

}  // namespace lyceum

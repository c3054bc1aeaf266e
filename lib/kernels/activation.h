#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "kernels/activation_kind.h"
#include "kernels/instances.h"
#include "kernels/segments.h"

namespace lyceum {

/// What is computed between the products of FFNs whose segments may differ in width. Padding rows of every result
/// become zero.
///   swiglu  y = silu(gate) ⊙ up, where a row of x is [gate | up]
///   gelu    y = x · Φ(x), Φ(x) = ½ · (1 + erf(x/√2))
template <class T>
struct ActivationForward {
  Activation kind;
  Segments segments;
  SegmentedMatrix<const T> x;  // rows of inputs_of(kind) · width_e
  SegmentedMatrix<T> y;        // rows of width_e
};

/// A gate for each row of a bank: gate[index[r]] for row r. A negative index, as in padding, is a gate of 0.
template <class A>
struct RowGates {
  std::span<const std::int64_t> index;  // [segment rows], no gate twice
  std::span<const A> gate;
  std::span<A> d_gate;  // its gradient; 0 of a gate that no row has

  constexpr explicit operator bool() const { return d_gate.data() != nullptr; }
};

/// dx of y = ActivationForward, or with `gates` of y = gate · ActivationForward, and then d_gate of each row as well. y
/// is computed again on the way, because the weight gradient that follows needs it. y may be the memory of dy.
template <class T>
struct ActivationBackward {
  Activation kind;
  Segments segments;
  SegmentedMatrix<const T> x, dy;
  SegmentedMatrix<T> dx;
  SegmentedMatrix<T> y;
  RowGates<Accumulator<T>> gates = {};
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

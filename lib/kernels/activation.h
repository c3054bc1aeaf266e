#pragma once

#include "core/stream.h"
#include "kernels/activation_kind.h"
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

/// dx of ActivationForward; y is computed again on the way, because the weight gradient that follows needs it. y may be
/// the memory of dy.
template <class T>
struct ActivationBackward {
  Activation kind;
  Segments segments;
  SegmentedMatrix<const T> x, dy;
  SegmentedMatrix<T> dx;
  SegmentedMatrix<T> y;
};

template <class T>
void run(const CpuStream& stream, const ActivationForward<T>& activation);
template <class T>
void run(const CpuStream& stream, const ActivationBackward<T>& activation);

template <class T>
void run(const CudaStream& stream, const ActivationForward<T>& activation);
template <class T>
void run(const CudaStream& stream, const ActivationBackward<T>& activation);

}  // namespace lyceum

#pragma once

#include "core/stream.h"
#include "kernels/segments.h"

namespace lyceum {

/// y = silu(gate) ⊙ up, where a row of x is [gate | up]; segments may differ in width. Padding rows
/// of every result become zero. [Shazeer 2020]
template <class T>
struct SwigluForward {
  Segments segments;
  SegmentedMatrix<const T> x;  // rows of 2 · width_e
  SegmentedMatrix<T> y;        // rows of width_e
};

/// dx of SwigluForward; y is computed again on the way, because the weight gradient that follows needs it.
template <class T>
struct SwigluBackward {
  Segments segments;
  SegmentedMatrix<const T> x, dy;
  SegmentedMatrix<T> dx;
  SegmentedMatrix<T> y;
};

template <class T>
void run(const CpuStream& stream, const SwigluForward<T>& swiglu);
template <class T>
void run(const CpuStream& stream, const SwigluBackward<T>& swiglu);

template <class T>
void run(const CudaStream& stream, const SwigluForward<T>& swiglu);
template <class T>
void run(const CudaStream& stream, const SwigluBackward<T>& swiglu);

}  // namespace lyceum

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// y[r] = σ(logits[r]) · x[r]: multiplies each row by a sigmoid gate.
template <class T>
struct RowGateForward {
  Matrix<const T> x;                       // [rows, cols]
  std::span<const Accumulator<T>> logits;  // [rows]
  Matrix<T> y;                             // [rows, cols]
};

/// Gradients of RowGateForward: dx[r] = g · dy[r], d_logits[r] = g · (1 − g) · (dy[r] · x[r]), with g = σ(logits[r]).
template <class T>
struct RowGateBackward {
  Matrix<const T> x, dy;                   // [rows, cols]
  std::span<const Accumulator<T>> logits;  // [rows]
  Matrix<T> dx;                            // [rows, cols]
  std::span<Accumulator<T>> d_logits;      // [rows]
};

template <class T>
void run(const CpuStream& stream, const RowGateForward<T>& gate);
template <class T>
void run(const CpuStream& stream, const RowGateBackward<T>& gate);

template <class T>
void run(const CudaStream& stream, const RowGateForward<T>& gate);
template <class T>
void run(const CudaStream& stream, const RowGateBackward<T>& gate);

#define LYCEUM_ROW_GATE_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, RowGateForward) \
  LYCEUM_FLOATS(INSTANCE, RowGateBackward)

}  // namespace lyceum

#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// y = σ(logit) · x, row by row.
template <class T>
struct RowGateForward {
  Matrix<const T> x;                       // [rows, cols]
  std::span<const Accumulator<T>> logits;  // [rows]
  Matrix<T> y;                             // [rows, cols]
};

/// dx and d_logits of RowGateForward.
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

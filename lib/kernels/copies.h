#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// y[t] = g · x[t], g the sum of gate[t, j] over the choices index[t, j] of at least `first`, j in order: experts that
/// give their input.
template <class T>
struct CopyRows {
  Matrix<const T> x;                  // [tokens, hidden]
  Matrix<const std::int32_t> index;   // [tokens, k]
  Matrix<const Accumulator<T>> gate;  // [tokens, k]
  std::int64_t first;
  Matrix<T> y;  // [tokens, hidden]
};

/// d_gate[t, j] = dy[t] · x[t] of those choices, 0 of others.
template <class T>
struct CopyRowsBackward {
  Matrix<const T> x, dy;             // [tokens, hidden]
  Matrix<const std::int32_t> index;  // [tokens, k]
  std::int64_t first;
  Matrix<Accumulator<T>> d_gate;  // [tokens, k]
};

template <class T>
void run(const CpuStream& stream, const CopyRows<T>& copy);
template <class T>
void run(const CpuStream& stream, const CopyRowsBackward<T>& copy);

template <class T>
void run(const CudaStream& stream, const CopyRows<T>& copy);
template <class T>
void run(const CudaStream& stream, const CopyRowsBackward<T>& copy);

#define LYCEUM_COPIES_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, CopyRows)     \
  LYCEUM_FLOATS(INSTANCE, CopyRowsBackward)

}  // namespace lyceum

#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// Computes the output of copy experts, which return their input. Experts from `first` on are copy experts.
/// y[t] = g · x[t], where g is the sum of gate[t, j] over the choices j with index[t, j] >= first, in the order of j.
template <class T>
struct CopyRows {
  Matrix<const T> x;                  // [tokens, hidden]
  Matrix<const std::int32_t> index;   // [tokens, k]
  Matrix<const Accumulator<T>> gate;  // [tokens, k]
  std::int64_t first;
  Matrix<T> y;  // [tokens, hidden]
};

/// Gradient of CopyRows by the gates: d_gate[t, j] = dy[t] · x[t] if index[t, j] >= first, else 0.
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

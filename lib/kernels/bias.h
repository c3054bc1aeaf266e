#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// y += bias, row by row, rounded to T.
template <class T>
struct AddBias {
  std::span<const T> bias;  // [cols]
  Matrix<T> y;              // [rows, cols]
};

/// d_bias += Σ_rows dy. The order of summation does not depend on the number of threads.
template <class T>
struct BiasGrad {
  Matrix<const T> dy;                // [rows, cols]
  std::span<Accumulator<T>> d_bias;  // [cols]
};

template <class T>
void run(const CpuStream& stream, const AddBias<T>& add);
template <class T>
void run(const CpuStream& stream, const BiasGrad<T>& sum);

template <class T>
void run(const CudaStream& stream, const AddBias<T>& add);
template <class T>
void run(const CudaStream& stream, const BiasGrad<T>& sum);

#define LYCEUM_BIAS_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, AddBias)    \
  LYCEUM_FLOATS(INSTANCE, BiasGrad)

}  // namespace lyceum

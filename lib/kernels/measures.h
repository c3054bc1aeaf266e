#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// y[0] += Σ x². Summed in double, first by row. The order of summation depends only on the device and the extents of
/// x. NaN and infinity propagate.
template <class T>
struct AddSquares {
  Matrix<const T> x;       // [rows, cols]
  std::span<double> rows;  // [rows]: receives the sums of the rows
  std::span<double> y;     // [1]
};

/// y[0] = the largest of y[0] and all x, or NaN if one of them is NaN.
template <class A>
struct RaiseToLargest {
  std::span<const A> x;
  std::span<double> y;  // [1]
};

template <class T>
void run(const CpuStream& stream, const AddSquares<T>& add);
template <class A>
void run(const CpuStream& stream, const RaiseToLargest<A>& raise);

template <class T>
void run(const CudaStream& stream, const AddSquares<T>& add);
template <class A>
void run(const CudaStream& stream, const RaiseToLargest<A>& raise);

#define LYCEUM_MEASURES_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, AddSquares)     \
  LYCEUM_ACCUMULATORS(INSTANCE, RaiseToLargest)

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/flat_blocks.h"
#include "kernels/instances.h"

// The steps of a Newton-Schulz iteration that are not matrix products. A batch is a stack of matrices of equal size,
// one after the other: row i of a Matrix here has all elements of matrix i.
namespace lyceum {

/// sums[i, b] = Σ x² in double over block b (flat_block elements) of matrix i. The order of summation depends only on
/// the size of a matrix.
template <class T>
struct SquaresOfBatch {
  Matrix<const T> x;    // [matrices, elements]
  Matrix<double> sums;  // [matrices, flat_blocks_of(elements)]
};

/// y[i] = Σ x[i, j] over j. The order of summation depends only on the device and the number of columns.
struct SumRows {
  Matrix<const double> x;  // [rows, cols]
  std::span<double> y;     // [rows]
};

/// x[i] = x[i] / (√squares[i] + eps): a matrix of zeros remains one.
template <class T>
struct NormalizeBatch {
  std::span<const double> squares;  // [matrices]
  double eps;
  Matrix<T> x;  // [matrices, elements]
};

/// y = a · y + b · z, rounded once.
template <class T>
struct Combine {
  double a, b;
  std::span<const Accumulator<T>> z;
  std::span<T> y;
};

template <class T>
void run(const CpuStream& stream, const SquaresOfBatch<T>& squares);
void run(const CpuStream& stream, const SumRows& sum);
template <class T>
void run(const CpuStream& stream, const NormalizeBatch<T>& normalize);
template <class T>
void run(const CpuStream& stream, const Combine<T>& combine);

template <class T>
void run(const CudaStream& stream, const SquaresOfBatch<T>& squares);
void run(const CudaStream& stream, const SumRows& sum);
template <class T>
void run(const CudaStream& stream, const NormalizeBatch<T>& normalize);
template <class T>
void run(const CudaStream& stream, const Combine<T>& combine);

#define LYCEUM_NEWTON_SCHULZ_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, SquaresOfBatch)      \
  LYCEUM_FLOATS(INSTANCE, NormalizeBatch)      \
  LYCEUM_FLOATS(INSTANCE, Combine)

}  // namespace lyceum

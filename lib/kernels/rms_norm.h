#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// y = x · rsqrt(mean(x²) + eps) · weight, row by row [Zhang & Sennrich 2019]. If `added` is set, as in a residual
/// connection, sum = x + added is computed first, rounded to T, and replaces x in the formula.
template <class T>
struct RmsNormForward {
  Matrix<const T> x;                      // [tokens, hidden]
  std::span<const T> weight;              // [hidden]
  Matrix<T> y;                            // [tokens, hidden]
  std::span<Accumulator<T>> inverse_rms;  // [tokens], kept for backward
  double eps;
  Matrix<const T> added = {};  // [tokens, hidden]; set or empty together with sum
  Matrix<T> sum = {};          // [tokens, hidden]; may be x or added
};

/// Gradient of RmsNormForward by x, or by sum if there was one (pass that as x).
template <class T>
struct RmsNormBackward {
  Matrix<const T> x, dy;                        // [tokens, hidden]
  std::span<const T> weight;                    // [hidden]
  std::span<const Accumulator<T>> inverse_rms;  // [tokens]
  Matrix<T> dx;                                 // [tokens, hidden]
  Matrix<const T> d_sum = {};                   // [tokens, hidden] or empty: other gradient of sum, added to dx
};

/// d_weight += Σ_tokens dy · x · inverse_rms. The order of summation does not depend on the number of threads.
template <class T>
struct RmsNormWeightGrad {
  Matrix<const T> x, dy;                        // [tokens, hidden]
  std::span<const Accumulator<T>> inverse_rms;  // [tokens]
  std::span<Accumulator<T>> d_weight;           // [hidden]
};

template <class T>
void run(const CpuStream& stream, const RmsNormForward<T>& norm);
template <class T>
void run(const CpuStream& stream, const RmsNormBackward<T>& norm);
template <class T>
void run(const CpuStream& stream, const RmsNormWeightGrad<T>& norm);

template <class T>
void run(const CudaStream& stream, const RmsNormForward<T>& norm);
template <class T>
void run(const CudaStream& stream, const RmsNormBackward<T>& norm);
template <class T>
void run(const CudaStream& stream, const RmsNormWeightGrad<T>& norm);

#define LYCEUM_RMS_NORM_KERNELS(INSTANCE)  \
  LYCEUM_FLOATS(INSTANCE, RmsNormForward)  \
  LYCEUM_FLOATS(INSTANCE, RmsNormBackward) \
  LYCEUM_FLOATS(INSTANCE, RmsNormWeightGrad)

}  // namespace lyceum

#pragma once

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// c = op(a) · op(b), or c += with `accumulate`; op transposes where asked. Row-major with any stride.
/// Types: float, bfloat16 or double in; out in the same type, or float from bfloat16. Sums are kept in f32 (f64).
template <class T, class Out = T>
struct Gemm {
  Matrix<const T> a;  // [m, k], or [k, m] with transpose_a
  Matrix<const T> b;  // [k, n], or [n, k] with transpose_b
  Matrix<Out> c;      // [m, n]
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
};

/// dw += (high + low)ᵀ · x: the gradient of a weight from rows that a SplitFloat made [high | low] of.
struct SplitWeightGrad {
  Matrix<const bfloat16> parts;  // [rows, 2 · width], width ≥ out
  Matrix<const bfloat16> x;      // [rows, in]
  Matrix<float> dw;              // [out, in]
};

template <class T, class Out>
void run(const CpuStream& stream, const Gemm<T, Out>& gemm);
void run(const CpuStream& stream, const SplitWeightGrad& grad);

template <class T, class Out>
void run(const CudaStream& stream, const Gemm<T, Out>& gemm);
void run(const CudaStream& stream, const SplitWeightGrad& grad);

#define LYCEUM_GEMM_KERNELS(INSTANCE) LYCEUM_FLOATS(INSTANCE, Gemm) INSTANCE(Gemm<bfloat16, float>)

}  // namespace lyceum

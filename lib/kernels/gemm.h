#pragma once

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// c = op(a) · op(b), or c += op(a) · op(b) with `accumulate`. op transposes its operand if transpose_a or transpose_b
/// is set. Matrices are row-major with any stride. T is float, bfloat16 or double; Out is T, or float for bfloat16.
/// Sums are accumulated in f32 (f64 for double).
template <class T, class Out = T>
struct Gemm {
  Matrix<const T> a;  // [m, k], or [k, m] with transpose_a
  Matrix<const T> b;  // [k, n], or [n, k] with transpose_b
  Matrix<Out> c;      // [m, n]
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
};

/// dw += (high + low)ᵀ · x: a weight gradient whose dy was split by SplitFloat into parts = [high | low].
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

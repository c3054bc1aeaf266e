#pragma once

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// c = op(a) · op(b), or c += op(a) · op(b) with `accumulate`. op transposes its operand if transpose_a or transpose_b
/// is set. Without `accumulate`, c is not read, so it may be NaN. Matrices are row-major with any stride. T is float,
/// bfloat16 or double; Out is T, or float for bfloat16. Sums are accumulated in f32 (f64 for double).
template <class T, class Out = T>
struct Gemm {
  Matrix<const T> a;  // [m, k], or [k, m] with transpose_a
  Matrix<const T> b;  // [k, n], or [n, k] with transpose_b
  Matrix<Out> c;      // [m, n]
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
};

/// `count` independent products of one shape. The matrices a, b and c of product i follow those of product i − 1 in
/// memory without a gap: they begin rows · stride elements after them. `first` is product 0.
template <class T, class Out = T>
struct GemmBatch {
  Gemm<T, Out> first;
  std::int64_t count;

  /// Returns product i.
  Gemm<T, Out> at(std::int64_t i) const {
    const auto moved = [&](auto matrix) {
      matrix.data += i * matrix.rows * matrix.stride;
      return matrix;
    };
    Gemm<T, Out> gemm = first;
    gemm.a = moved(first.a), gemm.b = moved(first.b), gemm.c = moved(first.c);
    return gemm;
  }
};

/// dw += (high + low)ᵀ · x, the weight gradient of a dy that SplitFloat has split into parts = [high | low]. Without
/// `accumulate`, dw is not read: dw = (high + low)ᵀ · x.
struct SplitWeightGrad {
  Matrix<const bfloat16> parts;  // [rows, 2 · width], width ≥ out
  Matrix<const bfloat16> x;      // [rows, in]
  Matrix<float> dw;              // [out, in]
  bool accumulate = true;
};

template <class T, class Out>
void run(const CpuStream& stream, const Gemm<T, Out>& gemm);
template <class T, class Out>
void run(const CpuStream& stream, const GemmBatch<T, Out>& batch);
void run(const CpuStream& stream, const SplitWeightGrad& grad);

template <class T, class Out>
void run(const CudaStream& stream, const Gemm<T, Out>& gemm);
template <class T, class Out>
void run(const CudaStream& stream, const GemmBatch<T, Out>& batch);
void run(const CudaStream& stream, const SplitWeightGrad& grad);

#define LYCEUM_GEMM_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, Gemm)       \
  INSTANCE(Gemm<bfloat16, float>)     \
  LYCEUM_FLOATS(INSTANCE, GemmBatch)  \
  INSTANCE(GemmBatch<bfloat16, float>)

}  // namespace lyceum

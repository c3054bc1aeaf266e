#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/segments.h"

namespace lyceum {

/// An operand whose rows are gathered from a matrix while the product reads them, so that no gathered copy is stored.
/// Row r, counted over all segments, is x[source[r] / divisor]; it is zero if source[r] is negative or r is padding.
/// Example: source[r] = token · k + choice and divisor = k pick the token's row.
template <class T>
struct PickedRows {
  Matrix<const T> x;
  std::span<const std::int64_t> source;  // [segment rows]
  std::int64_t divisor = 0;              // 0: the operand is stored as it is, nothing is picked

  /// True if rows are picked.
  constexpr explicit operator bool() const { return divisor > 0; }
};

/// y_e = x_e · w_e, or x_e · w_eᵀ with `transpose_weights`, for every segment e: the forward product and the input
/// gradient of an expert bank. Padding rows of y become zero.
template <class T>
struct GroupedGemm {
  Segments segments;
  SegmentedMatrix<const T> x;                // [rows, in_e]
  std::span<const Matrix<const T>> weights;  // [in_e, out_e], or [out_e, in_e] with transpose_weights
  SegmentedMatrix<T> y;                      // [rows, out_e]
  bool transpose_weights = false;
  PickedRows<T> picked = {};  // if set, replaces x
};

/// dw_e += dy_eᵀ · x_e for every segment e: the weight gradient of an expert bank, accumulated in f32 (f64 for double).
/// Without `accumulate`, dw_e = dy_eᵀ · x_e: dw is not read, and becomes zero for experts without rows. Padding rows
/// may be read: each must be zero in dy or in x, and finite in the other.
template <class T>
struct GroupedWeightGrad {
  Segments segments;
  SegmentedMatrix<const T> dy;                        // [rows, out_e]
  SegmentedMatrix<const T> x;                         // [rows, in_e]
  std::span<const Matrix<Accumulator<T>>> d_weights;  // [out_e, in_e]
  PickedRows<T> picked = {};                          // if set, replaces x
  PickedRows<T> picked_dy = {};                       // if set, replaces dy; `picked` must not be set then
  bool accumulate = true;
};

template <class T>
void run(const CpuStream& stream, const GroupedGemm<T>& grouped);
template <class T>
void run(const CpuStream& stream, const GroupedWeightGrad<T>& grouped);
template <class T>
void run(const CudaStream& stream, const GroupedGemm<T>& grouped);
template <class T>
void run(const CudaStream& stream, const GroupedWeightGrad<T>& grouped);

#define LYCEUM_GROUPED_GEMM_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, GroupedGemm)        \
  LYCEUM_FLOATS(INSTANCE, GroupedWeightGrad)

}  // namespace lyceum

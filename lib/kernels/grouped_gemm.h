#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"
#include "kernels/segments.h"

namespace lyceum {

/// Rows picked out of a matrix: row r of all segments' is x[source[r] / divisor], or zeros where source[r] is negative
/// and in padding.
template <class T>
struct PickedRows {
  Matrix<const T> x;
  std::span<const std::int64_t> source;  // [segment rows]
  std::int64_t divisor = 0;              // 0: no rows are picked

  constexpr explicit operator bool() const { return divisor > 0; }
};

/// y_e = x_e · w_e, or x_e · w_eᵀ with `transpose_weights`, for every segment e: an expert bank's forward and dgrad.
/// Rows of y between a segment's rows and the next segment's begin become zero.
template <class T>
struct GroupedGemm {
  Segments segments;
  SegmentedMatrix<const T> x;
  std::span<const Matrix<const T>> weights;  // [in_e, out_e], or [out_e, in_e] with transpose_weights
  SegmentedMatrix<T> y;
  bool transpose_weights = false;
  PickedRows<T> picked = {};  // the rows of x, if any
};

/// dw_e += dy_eᵀ · x_e for every segment e: an expert bank's wgrad, accumulated in f32 (f64).
/// Reads the padding rows of dy and x too, which must be zero in at least one of them and finite in the other.
template <class T>
struct GroupedWeightGrad {
  Segments segments;
  SegmentedMatrix<const T> dy;                        // [rows, out_e]
  SegmentedMatrix<const T> x;                         // [rows, in_e]
  std::span<const Matrix<Accumulator<T>>> d_weights;  // [out_e, in_e]
  PickedRows<T> picked = {};                          // the rows of x, if any
  PickedRows<T> picked_dy = {};                       // the rows of dy, if any; then those of x are not
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

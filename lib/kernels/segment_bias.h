#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/range.h"
#include "core/stream.h"
#include "kernels/activation.h"
#include "kernels/grouped_gemm.h"
#include "kernels/instances.h"
#include "kernels/segments.h"

// Biases of a bank of experts: one vector for each segment. `columns` are the columns of the rows to which a bias
// belongs, if it is only a slice of the bank's bias; if its count is 0, a bias belongs to all columns.

namespace lyceum {

/// y_e += bias_e, row by row, rounded to T. Padding rows remain unchanged.
template <class T>
struct AddSegmentBias {
  Segments segments;
  SegmentedMatrix<T> y;          // [rows, cols_e]
  SegmentVectors<const T> bias;  // [columns.count], or [cols_e]
  Range columns = {};
};

/// d_bias_e += Σ_r gate_r · dy_r over the rows r of segment e, accumulated in f32 (f64 for double), in an order that
/// does not depend on the number of threads. A null vector in `d_bias` is left out.
template <class T>
struct SegmentBiasGrad {
  Segments segments;
  SegmentedMatrix<const T> dy;            // [rows, cols_e]
  SegmentVectors<Accumulator<T>> d_bias;  // [columns.count], or [cols_e]
  Range columns = {};
  PickedRows<T> picked = {};  // if set, replaces dy
  /// The gate of each row, as in RowGates. Empty: all gates are 1.
  std::span<const std::int64_t> gate_of_row = {};
  std::span<const Accumulator<T>> gate = {};
};

/// The gradient of gates from the biases of the outputs that they multiply: d_gate of row r += ⟨dy_r, bias_e⟩.
template <class T>
struct SegmentBiasGateGrad {
  Segments segments;
  SegmentedMatrix<const T> dy;   // [rows, cols_e]
  SegmentVectors<const T> bias;  // [columns.count], or [cols_e]
  RowGates<Accumulator<T>> gates;
  Range columns = {};
  PickedRows<T> picked = {};  // if set, replaces dy
};

/// Returns the number of elements of bias e, for rows of `width` columns.
constexpr std::int64_t bias_width(const Range& columns, std::int64_t width) {
  return columns.count > 0 ? columns.count : width;
}

/// Returns the elements of row `row` of segment e of `work.dy` to which the bias belongs; null for a picked row of
/// zeros.
template <class Work>
constexpr auto* bias_columns_of_row(const Work& work, std::int64_t e, std::int64_t row) {
  const auto i = static_cast<std::size_t>(e);
  const auto* data = work.dy.data;
  if (!work.picked) return data + work.dy.offset[i] + row * work.dy.width[i] + work.columns.first;
  const std::int64_t source = work.picked.source[static_cast<std::size_t>(work.segments.begin[i] + row)];
  data = work.picked.x.data;
  return source < 0 ? nullptr : data + source / work.picked.divisor * work.picked.x.stride + work.columns.first;
}

template <class T>
void run(const CpuStream& stream, const AddSegmentBias<T>& add);
template <class T>
void run(const CpuStream& stream, const SegmentBiasGrad<T>& sum);
template <class T>
void run(const CpuStream& stream, const SegmentBiasGateGrad<T>& sum);

template <class T>
void run(const CudaStream& stream, const AddSegmentBias<T>& add);
template <class T>
void run(const CudaStream& stream, const SegmentBiasGrad<T>& sum);
template <class T>
void run(const CudaStream& stream, const SegmentBiasGateGrad<T>& sum);

#define LYCEUM_SEGMENT_BIAS_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, AddSegmentBias)     \
  LYCEUM_FLOATS(INSTANCE, SegmentBiasGrad)    \
  LYCEUM_FLOATS(INSTANCE, SegmentBiasGateGrad)

}  // namespace lyceum

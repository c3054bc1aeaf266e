#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

// Kernels on matrices whose columns are those of several heads, one head after the other. A HeadColumns is part of each
// head, such as the columns of its key that have no positions. Latent attention [DeepSeek-V2] joins and splits heads
// with them, and multiplies each head by its own matrix.
namespace lyceum {

/// A range of columns in every head. Head h has columns [first + h · step, first + h · step + cols) of `of`. With step
/// 0, all heads share these columns.
template <class T>
struct HeadColumns {
  Matrix<T> of;  // [tokens, …]
  std::int64_t first = 0, step = 0, cols = 0;

  constexpr HeadColumns() = default;
  constexpr HeadColumns(const Matrix<T>& of, std::int64_t first, std::int64_t step, std::int64_t cols)
      : of(of), first(first), step(step), cols(cols) {}
  constexpr operator HeadColumns<const T>() const { return {of, first, step, cols}; }  // NOLINT: as T* to const T*
  /// Returns the first element of a head in row `t`.
  constexpr T* at(std::int64_t t, std::int64_t head) const { return of.row(t) + first + head * step; }
};

/// to = from, for every token and head.
template <class T>
struct CopyHeads {
  std::int64_t heads;
  HeadColumns<const T> from;
  HeadColumns<T> to;  // step > 0, unless there is one head; must not overlap `from`
};

/// to[t] = Σ_heads from[t, head]. Sums are accumulated in Accumulator<T>, in the order of heads. It is the gradient of
/// CopyHeads from columns that all heads share.
template <class T>
struct SumHeads {
  std::int64_t heads;
  HeadColumns<const T> from;
  Matrix<T> to;  // [tokens, from.cols]
};

/// Multiplies each head by its own matrix M_h: y[t, h] = x[t, h] · M_h, or x[t, h] · M_hᵀ with `transpose`. Sums are
/// accumulated in Accumulator<T>. It is made for few tokens, as in generation: on a GPU, every token reads the matrices
/// again.
template <class T>
struct MultiplyHeads {
  std::int64_t heads;
  HeadColumns<const T> x;
  Matrix<const T> weights;  // M_h is rows [first_row + h · row_step, …): x.cols rows, or y.cols rows with `transpose`
  std::int64_t first_row, row_step;
  bool transpose;
  HeadColumns<T> y;  // step > 0, unless there is one head; must not overlap x
};

template <class T>
void run(const CpuStream& stream, const CopyHeads<T>& copy);
template <class T>
void run(const CpuStream& stream, const SumHeads<T>& sum);
template <class T>
void run(const CpuStream& stream, const MultiplyHeads<T>& product);

template <class T>
void run(const CudaStream& stream, const CopyHeads<T>& copy);
template <class T>
void run(const CudaStream& stream, const SumHeads<T>& sum);
template <class T>
void run(const CudaStream& stream, const MultiplyHeads<T>& product);

#define LYCEUM_HEAD_COLUMNS_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, CopyHeads)          \
  LYCEUM_FLOATS(INSTANCE, SumHeads)           \
  LYCEUM_FLOATS(INSTANCE, MultiplyHeads)

}  // namespace lyceum

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/range.h"
#include "kernels/gemm.h"
#include "kernels/gemm_choice.h"

namespace lyceum {

// alignment in bytes, a power of two, at most 256
inline std::uint32_t alignment_of(std::uintptr_t address) {
  const std::uintptr_t lowest = address & (~address + 1);
  return static_cast<std::uint32_t>(lowest ? std::min<std::uintptr_t>(lowest, 256) : 256);
}
inline std::uint32_t alignment_of(const void* address) {
  return alignment_of(reinterpret_cast<std::uintptr_t>(address));
}

/// Throws an Error if the extents do not fit together.
template <class T, class Out>
GemmShape shape_of(const Gemm<T, Out>& gemm) {
  const auto& [a, b, c, transpose_a, transpose_b, accumulate] = gemm;
  const std::int64_t k = transpose_a ? a.rows : a.cols, b_depth = transpose_b ? b.cols : b.rows;
  require(c.rows == (transpose_a ? a.cols : a.rows) && c.cols == (transpose_b ? b.rows : b.cols) && k == b_depth,
          "GEMM: {} x {}{} times {} x {}{} does not fit a result of {} x {}", a.rows, a.cols,
          transpose_a ? " transposed" : "", b.rows, b.cols, transpose_b ? " transposed" : "", c.rows, c.cols);
  return {.m = c.rows,
          .n = c.cols,
          .k = k,
          .a_stride = a.stride,
          .b_stride = b.stride,
          .c_stride = c.stride,
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .accumulate = accumulate,
          .in = dtype_of<T>,
          .out = dtype_of<Out>,
          .a_alignment = alignment_of(a.data),
          .b_alignment = alignment_of(b.data),
          .c_alignment = alignment_of(c.data)};
}

/// A matrix in column-major order: columns are `stride` elements apart, matrices of a batch `next` elements apart.
struct ColumnMajor {
  std::int64_t rows, cols, stride;
  bool transpose;
  std::int64_t next;
};

/// A BLAS is column-major, so it reads a row-major matrix as its transpose. It therefore computes cᵀ = op(b)ᵀ · op(a)ᵀ:
/// its first factor is the memory of b, its second that of a, and each is transposed exactly if Gemm transposes it.
struct BlasGemm {
  ColumnMajor first, second, result;

  explicit BlasGemm(const GemmShape& s)
      : first{s.transpose_b ? s.k : s.n, s.transpose_b ? s.n : s.k, s.b_stride, s.transpose_b,
              (s.transpose_b ? s.n : s.k) * s.b_stride},
        second{s.transpose_a ? s.m : s.k, s.transpose_a ? s.k : s.m, s.a_stride, s.transpose_a,
               (s.transpose_a ? s.k : s.m) * s.a_stride},
        result{s.n, s.m, s.c_stride, false, s.m * s.c_stride} {
    if (s.separate) return;
    if (s.transpose_b) first.next = s.k;
    if (!s.transpose_a) second.next = s.k;
  }
};

/// How a sum over k is split: `parts` products of `depth` each, and one of the `rest`. Their results are added in
/// order.
struct SumCut {
  std::int32_t parts;
  std::int64_t depth;
  Range rest;
};

/// Splits long sums with few results, whose 128 x 128 tiles would fill less than half of a GPU. Depends on the extents
/// only, so the same work gives the same bits on every GPU.
inline SumCut cut_sum(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t tile = 128, most_tiles = 128, least_depth = 1024, step = 16;  // step: 32 bytes of bf16
  const std::int64_t tiles = ((m + tile - 1) / tile) * ((n + tile - 1) / tile);
  std::int32_t parts = 1;
  while (2 * parts * tiles <= most_tiles && 2 * parts * least_depth <= k) parts *= 2;
  const std::int64_t depth = parts > 1 ? k / parts / step * step : k;
  return {.parts = parts, .depth = depth, .rest = {parts * depth, k - parts * depth}};
}

/// Returns the product over range `k` of the sum only, to be stored in `c`.
template <class T>
Gemm<T, float> slice_of(const Gemm<T, float>& gemm, const Range& k, const Matrix<float>& c) {
  return {.a = gemm.transpose_a ? gemm.a.rows_from(k.first, k.count) : gemm.a.cols_from(k.first, k.count),
          .b = gemm.transpose_b ? gemm.b.cols_from(k.first, k.count) : gemm.b.rows_from(k.first, k.count),
          .c = c,
          .transpose_a = gemm.transpose_a,
          .transpose_b = gemm.transpose_b};
}

/// Returns the shape of `batch` products at once; `shape` is that of the first. Alignments are those that hold for all.
inline GemmShape batch_of(GemmShape shape, std::int32_t batch, bool separate = false) {
  shape.batch = batch;
  if (batch == 1) return shape;
  shape.separate = separate;
  const BlasGemm blas(shape);
  const auto lower = [](std::uint32_t& alignment, const ColumnMajor& matrix, DType type) {
    alignment = std::min(alignment, alignment_of(static_cast<std::uintptr_t>(matrix.next) * size_of(type)));
  };
  lower(shape.a_alignment, blas.second, shape.in);
  lower(shape.b_alignment, blas.first, shape.in);
  lower(shape.c_alignment, blas.result, shape.out);
  return shape;
}

}  // namespace lyceum

#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/gemm.h"
#include "kernels/gemm_choice.h"

namespace lyceum {

inline std::uint32_t alignment_of(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t lowest = place & (~place + 1);
  return static_cast<std::uint32_t>(lowest ? std::min<std::uintptr_t>(lowest, 256) : 256);
}

/// Throws where the extents do not fit together.
template <class T, class Out>
GemmShape shape_of(const Gemm<T, Out>& gemm) {
  const auto& [a, b, c, transpose_a, transpose_b, accumulate] = gemm;
  const std::int64_t k = transpose_a ? a.rows : a.cols, b_depth = transpose_b ? b.cols : b.rows;
  require(c.rows == (transpose_a ? a.cols : a.rows) && c.cols == (transpose_b ? b.rows : b.cols) && k == b_depth,
          "GEMM of {} x {}{} and {} x {}{} into {} x {}", a.rows, a.cols, transpose_a ? " transposed" : "", b.rows,
          b.cols, transpose_b ? " transposed" : "", c.rows, c.cols);
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

/// One matrix as a BLAS sees it: columns are `stride` elements apart.
struct ColumnMajor {
  std::int64_t rows, cols, stride;
  bool transpose;
};

/// A BLAS has matrices column by column, and what it reads in the memory of a row-major matrix is its transpose. So it
/// is asked for cᵀ = op(b)ᵀ · op(a)ᵀ: the first factor is b's memory, the second a's, each transposed only where the
/// Gemm transposes too.
struct BlasGemm {
  ColumnMajor first, second, result;

  explicit BlasGemm(const GemmShape& s)
      : first{s.transpose_b ? s.k : s.n, s.transpose_b ? s.n : s.k, s.b_stride, s.transpose_b},
        second{s.transpose_a ? s.m : s.k, s.transpose_a ? s.k : s.m, s.a_stride, s.transpose_a},
        result{s.n, s.m, s.c_stride, false} {}
};

}  // namespace lyceum

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/grouped_gemm.h"

namespace lyceum::reference {

// GEMMs as plain loops. They compute the instances for double and are the reference in tests of the fast versions.

/// Gemm for any type.
template <class T, class Out>
void run(const CpuStream& stream, const Gemm<T, Out>& gemm) {
  const auto &a = gemm.a, &b = gemm.b;
  const auto& c = gemm.c;
  const bool transpose_a = gemm.transpose_a, transpose_b = gemm.transpose_b, accumulate = gemm.accumulate;
  const std::int64_t depth = transpose_a ? a.rows : a.cols;
#pragma omp parallel for num_threads(stream.threads())
  for (std::int64_t i = 0; i < c.rows; ++i) {
    using Sum = Accumulator<T>;
    std::vector<Sum> sums(static_cast<std::size_t>(c.cols));
    for (std::int64_t j = 0; j < c.cols && accumulate; ++j)
      sums[static_cast<std::size_t>(j)] = static_cast<Sum>(c.row(i)[j]);
    const auto left = [&](std::int64_t k) { return static_cast<Sum>(transpose_a ? a.row(k)[i] : a.row(i)[k]); };
    if (transpose_b) {
      for (std::int64_t j = 0; j < c.cols; ++j) {
        Sum& sum = sums[static_cast<std::size_t>(j)];
        for (std::int64_t k = 0; k < depth; ++k) sum += left(k) * static_cast<Sum>(b.row(j)[k]);
      }
    } else {
      for (std::int64_t k = 0; k < depth; ++k) {
        for (std::int64_t j = 0; j < c.cols; ++j)
          sums[static_cast<std::size_t>(j)] += left(k) * static_cast<Sum>(b.row(k)[j]);
      }
    }
    for (std::int64_t j = 0; j < c.cols; ++j) c.row(i)[j] = static_cast<Out>(sums[static_cast<std::size_t>(j)]);
  }
}

/// Returns the first `rows` rows of segment e of x: a view of x, or of `memory` with a copy of picked rows.
template <class T>
Matrix<const T> rows_of(const SegmentedMatrix<const T>& x, const PickedRows<T>& picked, const Segments& segments,
                        std::int64_t e, std::int64_t rows, std::vector<T>& memory) {
  if (!picked) return x.segment(segments, e).rows_from(0, rows);
  const std::int64_t first = segments.begin[static_cast<std::size_t>(e)], cols = picked.x.cols;
  memory.assign(static_cast<std::size_t>(rows * cols), T(0));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t source = picked.source[static_cast<std::size_t>(first + r)];
    if (source >= 0) std::copy_n(picked.x.row(source / picked.divisor), cols, memory.data() + r * cols);
  }
  return {memory.data(), rows, cols};
}

template <class T>
void run(const CpuStream& stream, const GroupedGemm<T>& grouped) {
  const Segments& segments = grouped.segments;
  std::vector<T> memory;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const std::int64_t rows = segments.rows[static_cast<std::size_t>(e)];
    const Matrix<T> y = grouped.y.segment(segments, e);
    reference::run(stream, Gemm<T>{.a = rows_of(grouped.x, grouped.picked, segments, e, rows, memory),
                                   .b = grouped.weights[static_cast<std::size_t>(e)],
                                   .c = y.rows_from(0, rows),
                                   .transpose_b = grouped.transpose_weights});
    for (T* padding = y.row(rows); padding != y.row(y.rows); ++padding) *padding = T(0);
  }
}

template <class T>
void run(const CpuStream& stream, const GroupedWeightGrad<T>& grouped) {
  const Segments& segments = grouped.segments;
  std::vector<T> of_dy, of_x;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const std::int64_t rows = segments.rows[static_cast<std::size_t>(e)];
    reference::run(stream,
                   Gemm<T, Accumulator<T>>{.a = rows_of(grouped.dy, grouped.picked_dy, segments, e, rows, of_dy),
                                           .b = rows_of(grouped.x, grouped.picked, segments, e, rows, of_x),
                                           .c = grouped.d_weights[static_cast<std::size_t>(e)],
                                           .transpose_a = true,
                                           .accumulate = grouped.accumulate});
  }
}

}  // namespace lyceum::reference

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/grouped_gemm.h"

namespace lyceum::reference {

/// The GEMMs as plain loops over rows: what double runs, and the oracle of the fast versions for any type.
template <class T, class Out>
void run(const CpuStream& stream, const Gemm<T, Out>& gemm) {
  const auto& [a, b, c, transpose_a, transpose_b, accumulate] = gemm;
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

template <class T>
void run(const CpuStream& stream, const GroupedGemm<T>& grouped) {
  const Segments& segments = grouped.segments;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const std::int64_t rows = segments.rows[static_cast<std::size_t>(e)];
    const Matrix<T> y = grouped.y.segment(segments, e);
    reference::run(stream, Gemm<T>{.a = grouped.x.segment(segments, e).rows_from(0, rows),
                                   .b = grouped.weights[static_cast<std::size_t>(e)],
                                   .c = y.rows_from(0, rows),
                                   .transpose_b = grouped.transpose_weights});
    for (T* padding = y.row(rows); padding != y.row(y.rows); ++padding) *padding = T(0);
  }
}

template <class T>
void run(const CpuStream& stream, const GroupedWeightGrad<T>& grouped) {
  const Segments& segments = grouped.segments;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const std::int64_t rows = segments.rows[static_cast<std::size_t>(e)];
    reference::run(stream, Gemm<T, Accumulator<T>>{.a = grouped.dy.segment(segments, e).rows_from(0, rows),
                                                   .b = grouped.x.segment(segments, e).rows_from(0, rows),
                                                   .c = grouped.d_weights[static_cast<std::size_t>(e)],
                                                   .transpose_a = true,
                                                   .accumulate = true});
  }
}

}  // namespace lyceum::reference

#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/allocator.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

/// Adds up rows: sums += Σ_r row r, where add_row(r, partial) adds row r to the array `partial` of sums.size()
/// elements. The order of summation does not depend on the number of threads.
template <class A, class F>
void add_column_sums(const CpuStream& stream, std::int64_t rows, std::span<A> sums, const F& add_row) {
  constexpr std::int64_t chunk_rows = 256;  // rows per partial sum
  const std::int64_t cols = std::ssize(sums), chunks = (rows + chunk_rows - 1) / chunk_rows;
  const auto memory =
      stream.memory().allocate(static_cast<std::size_t>(chunks * cols) * sizeof(A), MemoryKind::buffers);
  A* partial = reinterpret_cast<A*>(memory.get());
  parallel_for(stream, chunks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      A* sum = partial + chunk * cols;
      std::fill_n(sum, cols, A{0});
      const std::int64_t end = std::min(rows, (chunk + 1) * chunk_rows);
      for (std::int64_t r = chunk * chunk_rows; r < end; ++r) add_row(r, sum);
    }
  });
  A* result = sums.data();
  parallel_for(stream, cols, rows_per_thread(chunks), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const A* sum = partial + chunk * cols;
#pragma omp simd
      for (std::int64_t c = first; c < last; ++c) result[c] += sum[c];
    }
  });
}

}  // namespace lyceum

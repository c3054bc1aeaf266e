#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "core/stream.h"

namespace lyceum {

/// Smallest number of elements of simple arithmetic for which another thread is worth its start.
constexpr std::int64_t elements_per_thread = 16384;

/// Returns the smallest number of rows of `cols` elements for which another thread is worth its start.
inline std::int64_t rows_per_thread(std::int64_t cols) {
  return std::max<std::int64_t>(1, elements_per_thread / std::max<std::int64_t>(1, cols));
}

/// Returns the number of threads for `items` items of work: at most one per item, and 1 inside a parallel region,
/// because regions are not nested.
inline int threads_for(const CpuStream& stream, std::int64_t items) {
  return omp_in_parallel() ? 1 : static_cast<int>(std::min<std::int64_t>(stream.threads(), items));
}

/// Divides [0, count) into one contiguous range per thread, with borders at multiples of `grain`, and calls f(first,
/// last) for each. The division depends only on the arguments and the number of threads, so in successive kernels a
/// core processes the same rows. f must not throw.
template <class F>
void parallel_for(const CpuStream& stream, std::int64_t count, std::int64_t grain, const F& f) {
  const std::int64_t items = (count + grain - 1) / grain;
  const int threads = threads_for(stream, items);
  if (threads <= 1) {
    if (count > 0) f(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const std::int64_t team = omp_get_num_threads(), thread = omp_get_thread_num();
    const std::int64_t first = items * thread / team * grain;
    const std::int64_t last = std::min(count, items * (thread + 1) / team * grain);
    if (first < last) f(first, last);
  }
}

/// Calls f(row) for each of `rows` rows of `cols` elements, in parallel if there are enough elements. f must not throw.
template <class F>
void for_each_row(const CpuStream& stream, std::int64_t rows, std::int64_t cols, const F& f) {
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) f(row);
  });
}

/// Divides [0, count) into ranges of `grain` and calls f(first, last) for each on the next free thread, or once for the
/// whole range if there is only one thread. For work of uneven cost. f must not throw.
template <class F>
void parallel_for_dynamic(const CpuStream& stream, std::int64_t count, std::int64_t grain, const F& f) {
  const std::int64_t ranges = (count + grain - 1) / grain;
  const int threads = threads_for(stream, ranges);
  if (threads <= 1) {
    if (count > 0) f(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (std::int64_t range = 0; range < ranges; ++range) {
    f(range * grain, std::min(count, (range + 1) * grain));
  }
}

}  // namespace lyceum

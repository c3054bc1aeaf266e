#include "kernels/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/squares.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const SquaresOfBatch<T>& squares) {
  const std::int64_t blocks = flat_blocks_of(squares.x.cols);
  require_extents("SquaresOfBatch", "sums", squares.sums, squares.x.rows, blocks);
  parallel_for(stream, squares.x.rows * blocks, elements_per_thread / flat_block,
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t at = first; at < last; ++at) {
                   const std::int64_t matrix = at / blocks, begin = at % blocks * flat_block;
                   squares.sums.row(matrix)[at % blocks] =
                       sum_of_squares(squares.x.row(matrix) + begin, std::min(flat_block, squares.x.cols - begin));
                 }
               });
}

void run(const CpuStream& stream, const SumRows& sum) {
  require_length("SumRows", "y", sum.y, sum.x.rows);
  for_each_row(stream, sum.x.rows, sum.x.cols, [&](std::int64_t r) {
    sum.y[static_cast<std::size_t>(r)] = std::accumulate(sum.x.row(r), sum.x.row(r) + sum.x.cols, 0.0);
  });
}

template <class T>
void run(const CpuStream& stream, const NormalizeBatch<T>& normalize) {
  using A = Accumulator<T>;
  const std::int64_t blocks = flat_blocks_of(normalize.x.cols);
  require_length("NormalizeBatch", "squares", normalize.squares, normalize.x.rows);
  parallel_for(stream, normalize.x.rows * blocks, elements_per_thread / flat_block,
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t at = first; at < last; ++at) {
                   const std::int64_t matrix = at / blocks, begin = at % blocks * flat_block;
                   const double norm = std::sqrt(normalize.squares[static_cast<std::size_t>(matrix)]);
                   const A factor = static_cast<A>(1 / (norm + normalize.eps));
                   T* const x = normalize.x.row(matrix) + begin;
                   const std::int64_t count = std::min(flat_block, normalize.x.cols - begin);
#pragma omp simd
                   for (std::int64_t i = 0; i < count; ++i) x[i] = round_to<T>(static_cast<A>(x[i]) * factor);
                 }
               });
}

template <class T>
void run(const CpuStream& stream, const Combine<T>& combine) {
  using A = Accumulator<T>;
  const auto count = std::ssize(combine.y);
  require_length("Combine", "z", combine.z, count);
  const A a = static_cast<A>(combine.a), b = static_cast<A>(combine.b);
  parallel_for(stream, count, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    const A* const z = combine.z.data();
    T* const y = combine.y.data();
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) y[i] = round_to<T>(a * static_cast<A>(y[i]) + b * z[i]);
  });
}

LYCEUM_NEWTON_SCHULZ_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

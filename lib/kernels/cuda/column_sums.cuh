#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/allocator.h"
#include "core/error.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

constexpr int column_threads = 256, column_warps = column_threads / warp_size;
/// Number of rows per partial sum. It does not depend on the GPU, so neither does the order of summation.
constexpr std::int64_t column_chunk = 256;

/// partial[chunk, c] = Σ of the terms of the chunk's rows in column c. One thread block per chunk and per warp_size
/// packs of columns. Warp w sums every column_warps-th row of the chunk, from row w on; then the warps' sums are added
/// in order.
template <int width, class A, class Terms>
__global__ void __launch_bounds__(column_threads)
    sum_column_chunks(Terms terms, std::int64_t rows, std::int64_t cols, A* partial) {
  __shared__ A sums[column_warps][warp_size * width];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.x) * warp_size * width,
                     c = first_col + lane * width;
  const std::int64_t first = blockIdx.y * column_chunk;
  const std::int64_t last = first + column_chunk < rows ? first + column_chunk : rows;
  A sum[width] = {};
  if (c < cols) {
#pragma unroll 4  // so that the loads of several rows are issued together
    for (std::int64_t r = first + warp; r < last; r += column_warps) terms.add_row(r, c, sum);
  }
  for (int e = 0; e < width; ++e) sums[warp][lane * width + e] = sum[e];
  __syncthreads();
  for (int i = threadIdx.x; i < warp_size * width && first_col + i < cols; i += column_threads) {
    A total = 0;
    for (int w = 0; w < column_warps; ++w) total += sums[w][i];
    partial[blockIdx.y * cols + first_col + i] = total;
  }
}

/// Adds the partial sums of all chunks to `sums`, in order. One thread per column.
template <class A>
__global__ void __launch_bounds__(column_threads)
    add_column_chunks(const A* partial, std::int64_t chunks, std::span<A> sums) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
  const auto cols = static_cast<std::int64_t>(sums.size());
  if (c >= cols) return;
  A sum = sums[c];
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * cols + c];
  sums[c] = sum;
}

/// Adds to sums[c], for every column c, the terms of all rows, in a fixed order. terms.add_row(r, c, sum) must add the
/// terms of row r for the pack of `width` columns that begins at c to sum[0 … width). The number of columns must be a
/// multiple of `width`. Throws an Error if there are more than 65,535 chunks of rows.
template <int width, class A, class Terms>
void add_column_sums(const CudaStream& stream, std::string_view kernel, std::int64_t rows, std::span<A> sums,
                     const Terms& terms) {
  const std::int64_t cols = std::ssize(sums), chunks = (rows + column_chunk - 1) / column_chunk;
  if (chunks == 0) return;
  require(chunks <= 65535, "{}: {} rows are too many, at most {} are supported", kernel, rows, 65535 * column_chunk);
  const auto memory =
      stream.memory().allocate(static_cast<std::size_t>(chunks * cols) * sizeof(A), MemoryKind::buffers);
  A* partial = reinterpret_cast<A*>(memory.get());
  const dim3 grid(blocks_for(cols, warp_size * width), static_cast<unsigned>(chunks));
  start(stream, kernel, sum_column_chunks<width, A, Terms>, grid, column_threads, terms, rows, cols, partial);
  start(stream, kernel, add_column_chunks<A>, blocks_for(cols, column_threads), column_threads, partial, chunks, sums);
}

}  // namespace lyceum

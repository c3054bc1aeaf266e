#include <cmath>
#include <cstddef>
#include <limits>

#include "core/allocator.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/qk_clip_checks.h"

namespace lyceum {

namespace {

constexpr int qk_clip_threads = 256, qk_clip_warps = qk_clip_threads / warp_size;
constexpr std::int64_t rows_per_chunk = 256;  // rows of x per element of the maxima of chunks

/// chunks[i, c] = the largest element of rows_per_chunk rows of column c. One thread block per chunk i and per
/// warp_size columns; warp w takes every qk_clip_warps-th row.
template <class A>
__global__ void __launch_bounds__(qk_clip_threads) largest_of_chunks(Matrix<const A> x, double* chunks) {
  __shared__ double most[qk_clip_warps][warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * warp_size + lane;
  const std::int64_t first = blockIdx.y * rows_per_chunk;
  const std::int64_t last = first + rows_per_chunk < x.rows ? first + rows_per_chunk : x.rows;
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t r = first + warp; r < last && c < x.cols; r += qk_clip_warps) {
    largest = fmax(largest, static_cast<double>(x.row(r)[c]));
  }
  most[warp][lane] = largest;
  __syncthreads();
  if (warp != 0 || c >= x.cols) return;
  for (int w = 1; w < qk_clip_warps; ++w) largest = fmax(largest, most[w][lane]);
  chunks[blockIdx.y * x.cols + c] = largest;
}

__global__ void __launch_bounds__(qk_clip_threads)
    raise_to_chunks(const double* chunks, std::int64_t count, std::span<double> y) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * qk_clip_threads + threadIdx.x;
  const auto cols = static_cast<std::int64_t>(y.size());
  if (c >= cols) return;
  double largest = y[c];
  for (std::int64_t chunk = 0; chunk < count; ++chunk) largest = fmax(largest, chunks[chunk * cols + c]);
  y[c] = largest;
}

__global__ void __launch_bounds__(qk_clip_threads) clip_factors(QkClipFactors clip) {
  const std::int64_t g = static_cast<std::int64_t>(blockIdx.x) * qk_clip_threads + threadIdx.x;
  const auto heads = static_cast<std::int64_t>(clip.factors.size()) / 2;
  if (g >= heads) return;
  double factor = 1;
  for (std::int64_t h = g * clip.group; h < (g + 1) * clip.group; ++h) {
    const double logit = clip.largest[h];
    if (logit > clip.threshold && std::isfinite(logit)) factor = fmin(factor, clip.threshold / logit);
  }
  clip.factors[g] = std::sqrt(factor);
  clip.factors[heads + g] = factor;
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const RaiseToColumns<A>& raise) {
  require_fitting(raise);
  const std::int64_t cols = raise.x.cols, chunks = (raise.x.rows + rows_per_chunk - 1) / rows_per_chunk;
  if (chunks == 0 || cols == 0) return;
  require(chunks <= 65535, "RaiseToColumns: {} rows are too many, at most {} are supported", raise.x.rows,
          65535 * rows_per_chunk);
  const auto memory =
      stream.memory().allocate(static_cast<std::size_t>(chunks * cols) * sizeof(double), MemoryKind::buffers);
  auto* const partial = reinterpret_cast<double*>(memory.get());
  const dim3 grid(blocks_for(cols, warp_size), static_cast<unsigned>(chunks));
  start(stream, "RaiseToColumns", largest_of_chunks<A>, grid, qk_clip_threads, raise.x, partial);
  start(stream, "RaiseToColumns", raise_to_chunks, blocks_for(cols, qk_clip_threads), qk_clip_threads,
        static_cast<const double*>(partial), chunks, raise.y);
}

void run(const CudaStream& stream, const QkClipFactors& clip) {
  require_fitting(clip);
  const auto heads = static_cast<std::int64_t>(clip.factors.size()) / 2;
  if (heads == 0) return;
  start(stream, "QkClipFactors", clip_factors, blocks_for(heads, qk_clip_threads), qk_clip_threads, clip);
}

LYCEUM_QK_CLIP_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

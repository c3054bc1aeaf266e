#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/newton_schulz.h"

namespace lyceum {

namespace {

constexpr int batch_threads = 256;

/// One thread block per block of flat_block elements.
template <class T>
__global__ void __launch_bounds__(batch_threads) squares_of_batch(SquaresOfBatch<T> squares) {
  const std::int64_t blocks = squares.sums.cols, all = squares.x.rows * blocks;
  for (std::int64_t at = blockIdx.x; at < all; at += gridDim.x) {
    const std::int64_t matrix = at / blocks, begin = at % blocks * flat_block;
    const T* const x = squares.x.row(matrix);
    double sum = 0;
    for (std::int64_t i = begin + threadIdx.x; i < begin + flat_block && i < squares.x.cols; i += batch_threads) {
      const auto value = static_cast<double>(widen(x[i]));
      sum += value * value;
    }
    sum = join_block<batch_threads>(sum, Sum{});
    if (threadIdx.x == 0) squares.sums.row(matrix)[at % blocks] = sum;
  }
}

/// One thread block per row.
__global__ void __launch_bounds__(batch_threads) sum_rows(SumRows sum) {
  for (std::int64_t r = blockIdx.x; r < sum.x.rows; r += gridDim.x) {
    double all = 0;
    for (std::int64_t i = threadIdx.x; i < sum.x.cols; i += batch_threads) all += sum.x.row(r)[i];
    all = join_block<batch_threads>(all, Sum{});
    if (threadIdx.x == 0) sum.y[r] = all;
  }
}

/// One thread block per block of flat_block elements.
template <class T>
__global__ void __launch_bounds__(batch_threads) normalize_batch(NormalizeBatch<T> normalize) {
  using A = Accumulator<T>;
  const std::int64_t blocks = flat_blocks_of(normalize.x.cols), all = normalize.x.rows * blocks;
  for (std::int64_t at = blockIdx.x; at < all; at += gridDim.x) {
    const std::int64_t matrix = at / blocks, begin = at % blocks * flat_block;
    const auto factor = static_cast<A>(1 / (std::sqrt(normalize.squares[matrix]) + normalize.eps));
    T* const x = normalize.x.row(matrix);
    for (std::int64_t i = begin + threadIdx.x; i < begin + flat_block && i < normalize.x.cols; i += batch_threads) {
      x[i] = narrow<T>(widen(x[i]) * factor);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(batch_threads) combine_elements(Combine<T> combine) {
  using A = Accumulator<T>;
  const auto a = static_cast<A>(combine.a), b = static_cast<A>(combine.b);
  const auto count = static_cast<std::int64_t>(combine.y.size());
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * batch_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * batch_threads + threadIdx.x; i < count; i += stride) {
    combine.y[i] = narrow<T>(a * widen(combine.y[i]) + b * combine.z[i]);
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const SquaresOfBatch<T>& squares) {
  const std::int64_t blocks = flat_blocks_of(squares.x.cols);
  require_extents("SquaresOfBatch", "sums", squares.sums, squares.x.rows, blocks);
  start(stream, "SquaresOfBatch", squares_of_batch<T>, blocks_for(squares.x.rows * blocks), batch_threads, squares);
}

void run(const CudaStream& stream, const SumRows& sum) {
  require_length("SumRows", "y", sum.y, sum.x.rows);
  start(stream, "SumRows", sum_rows, blocks_for(sum.x.rows), batch_threads, sum);
}

template <class T>
void run(const CudaStream& stream, const NormalizeBatch<T>& normalize) {
  require_length("NormalizeBatch", "squares", normalize.squares, normalize.x.rows);
  start(stream, "NormalizeBatch", normalize_batch<T>, blocks_for(normalize.x.rows * flat_blocks_of(normalize.x.cols)),
        batch_threads, normalize);
}

template <class T>
void run(const CudaStream& stream, const Combine<T>& combine) {
  const auto count = static_cast<std::int64_t>(combine.y.size());
  require_length("Combine", "z", combine.z, count);
  start(stream, "Combine", combine_elements<T>, blocks_for(count, batch_threads), batch_threads, combine);
}

LYCEUM_NEWTON_SCHULZ_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/head_columns_checks.h"

namespace lyceum {

namespace {

constexpr int head_threads = 128, head_warps = head_threads / warp_size;

/// True if all heads begin at addresses that can be accessed in packs of `width` elements, and are whole packs.
template <class T>
bool heads_fit_packs(const HeadColumns<T>& columns, int width) {
  return columns.cols % width == 0 && columns.first % width == 0 && columns.step % width == 0 &&
         columns.of.stride % width == 0 && is_aligned(columns.of.data);
}

/// One thread per pack of `width` elements, in a grid-stride loop.
template <int width, class T>
__global__ void __launch_bounds__(head_threads) copy_heads(CopyHeads<T> copy, std::int64_t packs) {
  const std::int64_t per_head = copy.to.cols / width, per_token = copy.heads * per_head;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * head_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * head_threads + threadIdx.x; i < packs; i += stride) {
    const std::int64_t t = i / per_token, head = i % per_token / per_head, c = i % per_head * width;
    store(copy.to.at(t, head) + c, load<width>(copy.from.at(t, head) + c));
  }
}

/// One thread per element of the result, in a grid-stride loop.
template <class T>
__global__ void __launch_bounds__(head_threads) sum_heads(SumHeads<T> sum) {
  const std::int64_t count = sum.to.size(), stride = static_cast<std::int64_t>(gridDim.x) * head_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * head_threads + threadIdx.x; i < count; i += stride) {
    const std::int64_t t = i / sum.to.cols, c = i % sum.to.cols;
    Accumulator<T> total = 0;
    for (std::int64_t head = 0; head < sum.heads; ++head) total += widen(sum.from.at(t, head)[c]);
    sum.to.row(t)[c] = narrow<T>(total);
  }
}

/// One thread block per token and head; each thread computes some of the results. Neighbouring threads read
/// neighbouring elements of a row of weights.
template <class T>
__global__ void __launch_bounds__(head_threads) multiply_heads(MultiplyHeads<T> product) {
  const std::int64_t t = blockIdx.x / product.heads, head = blockIdx.x % product.heads;
  const T* x = product.x.at(t, head);
  const Matrix<const T> weights =
      product.weights.rows_from(product.first_row + head * product.row_step, product.x.cols);
  for (std::int64_t c = threadIdx.x; c < product.y.cols; c += head_threads) {
    Accumulator<T> sum = 0;
    for (std::int64_t k = 0; k < product.x.cols; ++k) sum += widen(x[k]) * widen(weights.row(k)[c]);
    product.y.at(t, head)[c] = narrow<T>(sum);
  }
}

/// multiply_heads() with transposed weights: one warp computes one result at a time.
template <class T>
__global__ void __launch_bounds__(head_threads) multiply_heads_transposed(MultiplyHeads<T> product) {
  const std::int64_t t = blockIdx.x / product.heads, head = blockIdx.x % product.heads;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const T* x = product.x.at(t, head);
  const Matrix<const T> weights =
      product.weights.rows_from(product.first_row + head * product.row_step, product.y.cols);
  for (std::int64_t c = threadIdx.x / warp_size; c < product.y.cols; c += head_warps) {
    Accumulator<T> sum = 0;
    for (std::int64_t k = lane; k < product.x.cols; k += warp_size) sum += widen(x[k]) * widen(weights.row(c)[k]);
    sum = join_warp(sum, Sum{});
    if (lane == 0) product.y.at(t, head)[c] = narrow<T>(sum);
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const CopyHeads<T>& copy) {
  require_fitting(copy);
  constexpr int width = pack_width<T>;
  const bool packed = heads_fit_packs(copy.from, width) && heads_fit_packs(copy.to, width);
  const std::int64_t packs = copy.to.of.rows * copy.heads * copy.to.cols / (packed ? width : 1);
  start(stream, "CopyHeads", packed ? copy_heads<width, T> : copy_heads<1, T>, blocks_for(packs, head_threads),
        head_threads, copy, packs);
}

template <class T>
void run(const CudaStream& stream, const SumHeads<T>& sum) {
  require_fitting(sum);
  start(stream, "SumHeads", sum_heads<T>, blocks_for(sum.to.size(), head_threads), head_threads, sum);
}

template <class T>
void run(const CudaStream& stream, const MultiplyHeads<T>& product) {
  require_fitting(product);
  const std::int64_t blocks = product.y.of.rows * product.heads;
  require(blocks <= 0x7fffffff, "MultiplyHeads: a launch cannot have {} thread blocks", blocks);
  start(stream, "MultiplyHeads", product.transpose ? multiply_heads_transposed<T> : multiply_heads<T>,
        static_cast<unsigned>(blocks), head_threads, product);
}

LYCEUM_HEAD_COLUMNS_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

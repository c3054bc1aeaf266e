#include "kernels/block_diagonal_checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int block_threads = 128;

/// One thread block per row of x, one thread per element of y.
template <class T>
__global__ void __launch_bounds__(block_threads) multiply_blocks(BlockDiagonal<T> product, BlockElements elements) {
  for (std::int64_t t = blockIdx.x; t < product.x.rows; t += gridDim.x) {
    for (std::int64_t at = threadIdx.x; at < product.x.cols; at += block_threads) {
      const std::int64_t g = at / elements.b, r = at % elements.b;
      Accumulator<T> sum = 0;
      for (std::int64_t c = 0; c < elements.b; ++c) {
        const T own =
            product.transpose ? product.weights.row(g * elements.b + c)[r] : product.weights.row(g * elements.b + r)[c];
        sum += widen(own) * widen(product.x.row(t)[elements(g, c)]);
      }
      product.y.row(t)[elements(g, r)] = narrow<T>(sum);
    }
  }
}

/// One thread block per block of the matrix, one thread per element of that block; it sums over the rows in order.
template <class T>
__global__ void __launch_bounds__(block_threads)
    add_block_gradients(BlockDiagonalWeightGrad<T> grad, BlockElements elements) {
  const std::int64_t g = blockIdx.x;
  for (std::int64_t at = threadIdx.x; at < elements.b * elements.b; at += block_threads) {
    const std::int64_t r = at / elements.b, c = at % elements.b, out = elements(g, r), in = elements(g, c);
    Accumulator<T> sum = 0;
    for (std::int64_t t = 0; t < grad.x.rows; ++t) sum += widen(grad.dy.row(t)[out]) * widen(grad.x.row(t)[in]);
    grad.d_weights.row(g * elements.b + r)[c] += sum;
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const BlockDiagonal<T>& product) {
  const BlockElements elements = require_fitting(product);
  start(stream, "BlockDiagonal", multiply_blocks<T>, blocks_for(product.x.rows), block_threads, product, elements);
}

template <class T>
void run(const CudaStream& stream, const BlockDiagonalWeightGrad<T>& grad) {
  const BlockElements elements = require_fitting(grad);
  start(stream, "BlockDiagonalWeightGrad", add_block_gradients<T>, blocks_for(elements.blocks), block_threads, grad,
        elements);
}

LYCEUM_BLOCK_DIAGONAL_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

#include <algorithm>

#include "core/allocator.h"
#include "core/error.h"
#include "kernels/block_diagonal_checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int block_threads = 128;
constexpr int multiplied_rows = 8;  // rows of x that a thread multiplies by the same elements of a block
constexpr int graded_rows = 8;      // rows of a block whose gradients a thread sums, for one column

// Numbers of thread blocks and of rows for which another part of a sum is worth its memory. They do not depend on the
// GPU, so neither does the order of summation.
constexpr std::int64_t wanted_blocks = 512;
constexpr std::int64_t least_rows = 64;

/// Block g and column c of an element of a row: the inverse of BlockElements.
struct BlockColumn {
  std::int64_t g, c;

  __device__ BlockColumn(const BlockElements& elements, std::int64_t element) {
    const std::int64_t unit = elements.order == BlockOrder::neighbours ? elements.b : elements.blocks;
    const std::int64_t quotient = element / unit, remainder = element % unit;
    const bool neighbours = elements.order == BlockOrder::neighbours;
    g = neighbours ? quotient : remainder;
    c = neighbours ? remainder : quotient;
  }
};

/// One thread per element of multiplied_rows rows of y.
template <class T>
__global__ void __launch_bounds__(block_threads) multiply_blocks(BlockDiagonal<T> product, BlockElements elements) {
  const std::int64_t element = static_cast<std::int64_t>(blockIdx.y) * block_threads + threadIdx.x;
  if (element >= product.x.cols) return;
  const BlockColumn at(elements, element);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * multiplied_rows;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * multiplied_rows; first < product.x.rows;
       first += stride) {
    Accumulator<T> sums[multiplied_rows] = {};
    for (std::int64_t c = 0; c < elements.b; ++c) {
      const T own = product.transpose ? product.weights.row(at.g * elements.b + c)[at.c]
                                      : product.weights.row(at.g * elements.b + at.c)[c];
      const std::int64_t from = elements(at.g, c);
#pragma unroll
      for (int i = 0; i < multiplied_rows; ++i) {
        if (first + i < product.x.rows) sums[i] += widen(own) * widen(product.x.row(first + i)[from]);
      }
    }
    for (int i = 0; i < multiplied_rows && first + i < product.x.rows; ++i) {
      product.y.row(first + i)[element] = narrow<T>(sums[i]);
    }
  }
}

/// One thread per element of x and per graded_rows rows of its block, for each part of `depth` rows of x. Writes the
/// sums of part i to part i of `parts`: [blocks · b, b]; or adds them to d_weights if there is only one part.
template <class T>
__global__ void __launch_bounds__(block_threads)
    sum_block_gradients(BlockDiagonalWeightGrad<T> grad, BlockElements elements, std::int64_t depth,
                        Accumulator<T>* parts) {
  const std::int64_t element = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (element >= grad.x.cols) return;
  const BlockColumn at(elements, element);
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.y) * graded_rows, begin = blockIdx.z * depth;
  const std::int64_t end = begin + depth < grad.x.rows ? begin + depth : grad.x.rows;
  Accumulator<T> sums[graded_rows] = {};
#pragma unroll 2  // so that the loads of several rows are issued together
  for (std::int64_t t = begin; t < end; ++t) {
    const Accumulator<T> x = widen(grad.x.row(t)[element]);
#pragma unroll
    for (int i = 0; i < graded_rows; ++i) {
      if (r + i < elements.b) sums[i] += widen(grad.dy.row(t)[elements(at.g, r + i)]) * x;
    }
  }
  for (int i = 0; i < graded_rows && r + i < elements.b; ++i) {
    const std::int64_t row = at.g * elements.b + r + i;
    if (parts) {
      parts[(blockIdx.z * grad.x.cols + row) * elements.b + at.c] = sums[i];
    } else {
      grad.d_weights.row(row)[at.c] += sums[i];
    }
  }
}

/// Adds all parts to d_weights, in order. One thread per element, in a grid-stride loop.
template <class A>
__global__ void __launch_bounds__(block_threads) add_parts(const A* parts, std::int64_t count, Matrix<A> d_weights) {
  const std::int64_t size = d_weights.rows * d_weights.cols,
                     stride = static_cast<std::int64_t>(gridDim.x) * block_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x; i < size; i += stride) {
    A& sum = d_weights.row(i / d_weights.cols)[i % d_weights.cols];
    for (std::int64_t part = 0; part < count; ++part) sum += parts[part * size + i];
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const BlockDiagonal<T>& product) {
  const BlockElements elements = require_fitting(product);
  const dim3 grid(blocks_for(product.x.rows, multiplied_rows), blocks_for(product.x.cols, block_threads));
  start(stream, "BlockDiagonal", multiply_blocks<T>, grid, block_threads, product, elements);
}

template <class T>
void run(const CudaStream& stream, const BlockDiagonalWeightGrad<T>& grad) {
  using A = Accumulator<T>;
  const BlockElements elements = require_fitting(grad);
  const std::int64_t rows = grad.x.rows, cols = grad.x.cols, b = elements.b;
  if (rows == 0 || cols == 0) return;
  const unsigned across = blocks_for(cols, block_threads), down = blocks_for(b, graded_rows);
  const std::int64_t wanted = wanted_blocks / (static_cast<std::int64_t>(across) * down);
  const std::int64_t depth = std::max(least_rows, wanted > 1 ? (rows + wanted - 1) / wanted : rows);
  const std::int64_t count = (rows + depth - 1) / depth;
  const std::shared_ptr<std::byte> memory =
      count > 1 ? stream.memory().allocate(static_cast<std::size_t>(count * cols * b) * sizeof(A), MemoryKind::buffers)
                : nullptr;
  A* const parts = reinterpret_cast<A*>(memory.get());
  const dim3 grid(across, down, static_cast<unsigned>(count));
  start(stream, "BlockDiagonalWeightGrad", sum_block_gradients<T>, grid, block_threads, grad, elements, depth, parts);
  if (parts) {
    start(stream, "BlockDiagonalWeightGrad", add_parts<A>, blocks_for(cols * b, block_threads), block_threads, parts,
          count, grad.d_weights);
  }
}

LYCEUM_BLOCK_DIAGONAL_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

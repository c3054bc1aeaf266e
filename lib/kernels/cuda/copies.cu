#include "kernels/checks.h"
#include "kernels/copies.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int copy_threads = 128;

/// One thread block per token, in a grid-stride loop.
template <class T>
__global__ void __launch_bounds__(copy_threads) copy_rows(CopyRows<T> copy) {
  using A = Accumulator<T>;
  for (std::int64_t t = blockIdx.x; t < copy.y.rows; t += gridDim.x) {
    A gate = 0;
    for (std::int64_t j = 0; j < copy.index.cols; ++j) {
      if (copy.index.row(t)[j] >= copy.first) gate += copy.gate.row(t)[j];
    }
    for (std::int64_t c = threadIdx.x; c < copy.y.cols; c += copy_threads) {
      copy.y.row(t)[c] = narrow<T>(gate * widen(copy.x.row(t)[c]));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(copy_threads) copy_rows_backward(CopyRowsBackward<T> copy) {
  using A = Accumulator<T>;
  for (std::int64_t t = blockIdx.x; t < copy.x.rows; t += gridDim.x) {
    A dot = 0;
    for (std::int64_t c = threadIdx.x; c < copy.x.cols; c += copy_threads) {
      dot += widen(copy.dy.row(t)[c]) * widen(copy.x.row(t)[c]);
    }
    dot = join_block<copy_threads>(dot, Sum{});
    for (std::int64_t j = 0; j < copy.index.cols && threadIdx.x == 0; ++j) {
      copy.d_gate.row(t)[j] = copy.index.row(t)[j] >= copy.first ? dot : A{0};
    }
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const CopyRows<T>& copy) {
  const std::int64_t tokens = copy.x.rows;
  require_extents("CopyRows", "index", copy.index, tokens, copy.index.cols);
  require_extents("CopyRows", "gate", copy.gate, tokens, copy.index.cols);
  require_extents("CopyRows", "y", copy.y, tokens, copy.x.cols);
  start(stream, "CopyRows", copy_rows<T>, blocks_for(tokens), copy_threads, copy);
}

template <class T>
void run(const CudaStream& stream, const CopyRowsBackward<T>& copy) {
  const std::int64_t tokens = copy.x.rows;
  require_extents("CopyRowsBackward", "dy", copy.dy, tokens, copy.x.cols);
  require_extents("CopyRowsBackward", "index", copy.index, tokens, copy.index.cols);
  require_extents("CopyRowsBackward", "d_gate", copy.d_gate, tokens, copy.index.cols);
  start(stream, "CopyRowsBackward", copy_rows_backward<T>, blocks_for(tokens), copy_threads, copy);
}

LYCEUM_COPIES_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

#include "kernels/bias.h"
#include "kernels/checks.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {

namespace {

constexpr int bias_threads = 256;

/// One thread block per row, in a grid-stride loop.
template <int width, class T>
__global__ void __launch_bounds__(bias_threads) add_bias(AddBias<T> add) {
  for (std::int64_t r = blockIdx.x; r < add.y.rows; r += gridDim.x) {
    T* y = add.y.row(r);
    for (std::int64_t c = threadIdx.x * width; c < add.y.cols; c += bias_threads * width) {
      auto values = load<width>(y + c);
      const auto bias = load<width>(add.bias.data() + c);
      for (int e = 0; e < width; ++e) values[e] = narrow<T>(widen(values[e]) + widen(bias[e]));
      store(y + c, values);
    }
  }
}

template <int width, class T>
struct BiasTerms {
  Matrix<const T> dy;

  __device__ void add_row(std::int64_t r, std::int64_t c, Accumulator<T> (&sum)[width]) const {
    const auto values = load<width>(dy.row(r) + c);
    for (int e = 0; e < width; ++e) sum[e] += widen(values[e]);
  }
};

}  // namespace

template <class T>
void run(const CudaStream& stream, const AddBias<T>& add) {
  require_length("AddBias", "bias", add.bias, add.y.cols);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(add.y, width) && fits_packs(add.bias, width);
  start(stream, "AddBias", packed ? add_bias<width, T> : add_bias<1, T>, blocks_for(add.y.rows), bias_threads, add);
}

template <class T>
void run(const CudaStream& stream, const BiasGrad<T>& sum) {
  require_length("BiasGrad", "d_bias", sum.d_bias, sum.dy.cols);
  constexpr int width = pack_width<T>;
  if (fits_packs(sum.dy, width)) {
    add_column_sums<width>(stream, "BiasGrad", sum.dy.rows, sum.d_bias, BiasTerms<width, T>{sum.dy});
  } else {
    add_column_sums<1>(stream, "BiasGrad", sum.dy.rows, sum.d_bias, BiasTerms<1, T>{sum.dy});
  }
}

LYCEUM_BIAS_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

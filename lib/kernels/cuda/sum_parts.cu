#include "core/error.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sum_parts.h"

namespace lyceum {

namespace {

constexpr int sum_threads = 256;

/// One thread per pack of `width` neighbouring elements of c, in a grid-stride loop.
template <int width>
__global__ void __launch_bounds__(sum_threads) sum_parts(SumParts sum) {
  const std::int64_t packs = sum.c.cols / width, count = sum.c.rows * packs;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * sum_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * sum_threads + threadIdx.x; i < count; i += stride) {
    const std::int64_t r = i / packs, col = i % packs * width;
    auto total = load<width>(sum.parts.row(r) + col);
    for (std::int64_t row = r + sum.height; row < sum.parts.rows; row += sum.height) {
      const auto part = load<width>(sum.parts.row(row) + col);
      for (int e = 0; e < width; ++e) total[e] += part[e];
    }
    float* const c = sum.c.row(r) + col;
    if (sum.accumulate) {
      const auto before = load<width>(c);
      for (int e = 0; e < width; ++e) total[e] += before[e];
    }
    store(c, total);
  }
}

}  // namespace

void run(const CudaStream& stream, const SumParts& sum) {
  const Matrix<float>& c = sum.c;
  require(sum.parts.cols == c.cols && c.rows > 0 && sum.height >= c.rows && sum.parts.rows >= sum.height &&
              sum.parts.rows % sum.height == 0,
          "SumParts: parts [{}, {}] of height {} do not match a result [{}, {}]", sum.parts.rows, sum.parts.cols,
          sum.height, c.rows, c.cols);
  constexpr int width = pack_width<float>;
  if (fits_packs(sum.parts, width) && fits_packs(c, width)) {
    start(stream, "SumParts", sum_parts<width>, blocks_for(c.size() / width, sum_threads), sum_threads, sum);
  } else {
    start(stream, "SumParts", sum_parts<1>, blocks_for(c.size(), sum_threads), sum_threads, sum);
  }
}

}  // namespace lyceum

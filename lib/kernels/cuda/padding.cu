#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/padding.h"

namespace lyceum {

namespace {

constexpr int padding_threads = 256;

/// One thread block per segment: the number of padding rows is known on the device only.
template <class T>
__global__ void __launch_bounds__(padding_threads) clear_padding(ClearPadding<T> padding) {
  const std::int64_t e = blockIdx.x, cols = padding.x.cols;
  const std::int64_t first = padding.segments.begin[e] + padding.segments.rows[e];
  const std::int64_t elements = (padding.segments.begin[e + 1] - first) * cols;
  for (std::int64_t i = threadIdx.x; i < elements; i += padding_threads)
    padding.x.row(first + i / cols)[i % cols] = T{};
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const ClearPadding<T>& padding) {
  if (padding.x.cols == 0) return;
  start(stream, "ClearPadding", clear_padding<T>, static_cast<unsigned>(padding.segments.count()), padding_threads,
        padding);
}

LYCEUM_PADDING_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/segments.cuh"
#include "kernels/swiglu.h"

namespace lyceum {

namespace {

constexpr int swiglu_threads = 128;
constexpr int blocks_a_processor = 16;

template <int width, class T>
__device__ void forward_row(const T* x, std::int64_t cols, T* y) {
  using A = Accumulator<T>;
  for (std::int64_t c = threadIdx.x * width; c < cols; c += swiglu_threads * width) {
    const auto gate = load<width>(x + c), up = load<width>(x + cols + c);
    Pack<T, width> result;
    for (int e = 0; e < width; ++e) {
      const A g = widen(gate[e]);
      result[e] = narrow<T>(g * (A{1} / (A{1} + std::exp(-g))) * widen(up[e]));
    }
    store(y + c, result);
  }
}

template <int width, class T>
__device__ void backward_row(const T* x, const T* dy, std::int64_t cols, T* dx, T* y) {
  using A = Accumulator<T>;
  for (std::int64_t c = threadIdx.x * width; c < cols; c += swiglu_threads * width) {
    const auto gate = load<width>(x + c), up = load<width>(x + cols + c), gradient = load<width>(dy + c);
    Pack<T, width> d_gate, d_up, result;
    for (int e = 0; e < width; ++e) {
      const A g = widen(gate[e]), u = widen(up[e]), d = widen(gradient[e]);
      const A sigmoid = A{1} / (A{1} + std::exp(-g));
      const A silu = g * sigmoid;
      result[e] = narrow<T>(silu * u);
      d_up[e] = narrow<T>(d * silu);
      d_gate[e] = narrow<T>(d * u * (sigmoid + silu * (A{1} - sigmoid)));  // silu' = σ + g·σ·(1 − σ)
    }
    store(dx + c, d_gate);
    store(dx + cols + c, d_up);
    store(y + c, result);
  }
}

template <class T>
__device__ void clear_row(T* row, std::int64_t cols) {
  for (std::int64_t c = threadIdx.x; c < cols; c += swiglu_threads) row[c] = T{};
}

/// Blocks walk over all rows, padding included: only the device knows how many there are, and how wide.
template <class T>
__global__ void __launch_bounds__(swiglu_threads) swiglu_forward(SwigluForward<T> swiglu, IndexCheck widths) {
  constexpr int width = pack_width<T>;
  const std::int64_t total = swiglu.segments.total();
  for (std::int64_t r = blockIdx.x; r < total; r += gridDim.x) {
    const std::int64_t e = segment_of(swiglu.segments, r), row = r - swiglu.segments.begin[e];
    const std::int64_t cols = swiglu.y.width[e];
    if (!widths.passes(swiglu.x.width[e] - 2 * cols)) continue;
    const T* x = swiglu.x.data + swiglu.x.offset[e] + row * 2 * cols;
    T* y = swiglu.y.data + swiglu.y.offset[e] + row * cols;
    if (row >= swiglu.segments.rows[e]) {
      clear_row(y, cols);
    } else if (cols % width == 0 && is_aligned(x) && is_aligned(y)) {
      forward_row<width>(x, cols, y);
    } else {
      forward_row<1>(x, cols, y);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(swiglu_threads) swiglu_backward(SwigluBackward<T> swiglu, IndexCheck widths) {
  constexpr int width = pack_width<T>;
  const std::int64_t total = swiglu.segments.total();
  for (std::int64_t r = blockIdx.x; r < total; r += gridDim.x) {
    const std::int64_t e = segment_of(swiglu.segments, r), row = r - swiglu.segments.begin[e];
    const std::int64_t cols = swiglu.y.width[e];
    if (!widths.passes(swiglu.x.width[e] - 2 * cols) || !widths.passes(swiglu.dx.width[e] - 2 * cols) ||
        !widths.passes(swiglu.dy.width[e] - cols)) {
      continue;
    }
    const T* x = swiglu.x.data + swiglu.x.offset[e] + row * 2 * cols;
    const T* dy = swiglu.dy.data + swiglu.dy.offset[e] + row * cols;
    T* dx = swiglu.dx.data + swiglu.dx.offset[e] + row * 2 * cols;
    T* y = swiglu.y.data + swiglu.y.offset[e] + row * cols;
    if (row >= swiglu.segments.rows[e]) {
      clear_row(dx, 2 * cols);
      clear_row(y, cols);
    } else if (cols % width == 0 && is_aligned(x) && is_aligned(dy) && is_aligned(dx) && is_aligned(y)) {
      backward_row<width>(x, dy, cols, dx, y);
    } else {
      backward_row<1>(x, dy, cols, dx, y);
    }
  }
}

void require_layouts(std::string_view kernel, const Segments& segments, std::span<const std::int64_t> double_width,
                     std::span<const std::int64_t> width) {
  require_length(kernel, "begin", segments.begin, segments.count() + 1);
  require_length(kernel, "width of y", width, segments.count());
  require_length(kernel, "width of x", double_width, segments.count());
}

/// The layouts are on the device: rows whose widths do not fit are left out, and noted.
IndexCheck excess_width(const CudaStream& stream, const char* kernel) {
  return {stream, kernel, "the width of a row, less what it should be,", 0, 1};
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const SwigluForward<T>& swiglu) {
  if (swiglu.segments.count() == 0) return;
  require_layouts("SwigluForward", swiglu.segments, swiglu.x.width, swiglu.y.width);
  start(stream, "SwigluForward", swiglu_forward<T>, blocks_a_processor * stream.processors(), swiglu_threads, swiglu,
        excess_width(stream, "SwigluForward"));
}

template <class T>
void run(const CudaStream& stream, const SwigluBackward<T>& swiglu) {
  if (swiglu.segments.count() == 0) return;
  require_layouts("SwigluBackward", swiglu.segments, swiglu.x.width, swiglu.y.width);
  require_layouts("SwigluBackward", swiglu.segments, swiglu.dx.width, swiglu.dy.width);
  start(stream, "SwigluBackward", swiglu_backward<T>, blocks_a_processor * stream.processors(), swiglu_threads, swiglu,
        excess_width(stream, "SwigluBackward"));
}

template void run(const CudaStream&, const SwigluForward<float>&);
template void run(const CudaStream&, const SwigluForward<bfloat16>&);
template void run(const CudaStream&, const SwigluForward<double>&);
template void run(const CudaStream&, const SwigluBackward<float>&);
template void run(const CudaStream&, const SwigluBackward<bfloat16>&);
template void run(const CudaStream&, const SwigluBackward<double>&);

}  // namespace lyceum

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/logistic.h"
#include "kernels/row_gate_checks.h"

namespace lyceum {

namespace {

constexpr int gate_threads = 256;

/// One thread block per row, in a grid-stride loop.
template <int width, class T>
__global__ void __launch_bounds__(gate_threads) row_gate_forward(RowGateForward<T> gate) {
  for (std::int64_t r = blockIdx.x; r < gate.x.rows; r += gridDim.x) {
    const Accumulator<T> g = logistic(gate.logits[r]);
    for (std::int64_t c = threadIdx.x * width; c < gate.x.cols; c += gate_threads * width) {
      auto values = load<width>(gate.x.row(r) + c);
      for (int e = 0; e < width; ++e) values[e] = narrow<T>(g * widen(values[e]));
      store(gate.y.row(r) + c, values);
    }
  }
}

template <int width, class T>
__global__ void __launch_bounds__(gate_threads) row_gate_backward(RowGateBackward<T> gate) {
  using A = Accumulator<T>;
  for (std::int64_t r = blockIdx.x; r < gate.x.rows; r += gridDim.x) {
    const A g = logistic(gate.logits[r]);
    A dot = 0;
    for (std::int64_t c = threadIdx.x * width; c < gate.x.cols; c += gate_threads * width) {
      const auto xs = load<width>(gate.x.row(r) + c), dys = load<width>(gate.dy.row(r) + c);
      Pack<T, width> dx;
      for (int e = 0; e < width; ++e) {
        dot += widen(dys[e]) * widen(xs[e]);
        dx[e] = narrow<T>(g * widen(dys[e]));
      }
      store(gate.dx.row(r) + c, dx);
    }
    dot = join_block<gate_threads>(dot, Sum{});
    if (threadIdx.x == 0) gate.d_logits[r] = dot * g * (A{1} - g);
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const RowGateForward<T>& gate) {
  require_fitting(gate);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(gate.x, width) && fits_packs(gate.y, width);
  start(stream, "RowGateForward", packed ? row_gate_forward<width, T> : row_gate_forward<1, T>, blocks_for(gate.x.rows),
        gate_threads, gate);
}

template <class T>
void run(const CudaStream& stream, const RowGateBackward<T>& gate) {
  require_fitting(gate);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(gate.x, width) && fits_packs(gate.dy, width) && fits_packs(gate.dx, width);
  start(stream, "RowGateBackward", packed ? row_gate_backward<width, T> : row_gate_backward<1, T>,
        blocks_for(gate.x.rows), gate_threads, gate);
}

LYCEUM_ROW_GATE_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

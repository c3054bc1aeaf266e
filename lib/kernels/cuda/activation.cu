#include "kernels/activation.h"
#include "kernels/checks.h"
#include "kernels/cuda/activation_formulas.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/segments.cuh"

namespace lyceum {

namespace {

constexpr int activation_threads = 128;
constexpr int blocks_per_processor = 16;

/// The inputs of a pack of `width` columns, with their biases.
template <class Kind, int width, class T>
struct ActivationInputs {
  Pack<T, width> x[Kind::inputs], bias[Kind::inputs];
  bool biased;

  /// The inputs of a column are `cols` elements apart. `bias` is null if there are none.
  __device__ ActivationInputs(const T* x, const T* bias, std::int64_t cols) : biased(bias) {
    for (int i = 0; i < Kind::inputs; ++i) {
      this->x[i] = load<width>(x + i * cols);
      if (biased) this->bias[i] = load<width>(bias + i * cols);
    }
  }
  /// Writes the inputs of column e of the pack to `to`.
  __device__ void get(int e, Accumulator<T> (&to)[Kind::inputs]) const {
    for (int i = 0; i < Kind::inputs; ++i) {
      to[i] = widen(x[i][e]);
      if (biased) to[i] += widen(bias[i][e]);
    }
  }
};

/// Computes y of a pack of `width` columns.
template <class Kind, int width, class T>
__device__ void forward_pack(const Kind& kind, const ActivationInputs<Kind, width, T>& in, T* y) {
  Pack<T, width> result;
  for (int e = 0; e < width; ++e) {
    Accumulator<T> element[Kind::inputs];
    in.get(e, element);
    result[e] = narrow<T>(kind.forward(element));
  }
  store(y, result);
}

/// Computes dx and y of a pack of columns, and adds the columns' part of the gate's gradient to d_gate. y may be the
/// memory of dy.
template <class Kind, int width, class T>
__device__ void backward_pack(const Kind& kind, const ActivationInputs<Kind, width, T>& in, const T* dy,
                              Accumulator<T> gate, std::int64_t cols, T* dx, T* y, Accumulator<T>& d_gate) {
  Pack<T, width> out[Kind::inputs], result, gradient = load<width>(dy);
  for (int e = 0; e < width; ++e) {
    Accumulator<T> element[Kind::inputs], d_element[Kind::inputs];
    in.get(e, element);
    result[e] = narrow<T>(gated_backward(kind, element, widen(gradient[e]), gate, d_element, d_gate));
    for (int i = 0; i < Kind::inputs; ++i) out[i][e] = narrow<T>(d_element[i]);
  }
  for (int i = 0; i < Kind::inputs; ++i) store(dx + i * cols, out[i]);
  store(y, result);
}

/// Calls f(c) with the first column of every pack of `width` columns that this thread computes.
template <int width, class F>
__device__ void for_columns(std::int64_t cols, const F& f) {
  for (std::int64_t c = threadIdx.x * width; c < cols; c += activation_threads * width) f(c);
}

template <class T>
__device__ void clear_row(T* row, std::int64_t cols) {
  for (std::int64_t c = threadIdx.x; c < cols; c += activation_threads) row[c] = T{};
}

/// One thread block per row, in a grid-stride loop over all rows including padding: the number of rows and their widths
/// are known on the device only.
template <class Kind, class T>
__global__ void __launch_bounds__(activation_threads) activation_forward(ActivationForward<T> work, IndexCheck widths) {
  constexpr int width = pack_width<T>;
  constexpr std::int64_t inputs = Kind::inputs;
  const Kind kind(work.function);
  const std::int64_t total = work.segments.total();
  for (std::int64_t r = blockIdx.x; r < total; r += gridDim.x) {
    const std::int64_t e = segment_of(work.segments, r), row = r - work.segments.begin[e];
    const std::int64_t cols = work.y.width[e];
    if (!widths.passes(work.x.width[e] - inputs * cols)) continue;
    const T* x = work.x.data + work.x.offset[e] + row * inputs * cols;
    const T* bias = work.bias.empty() ? nullptr : work.bias[e];
    T* y = work.y.data + work.y.offset[e] + row * cols;
    const auto forward = [&]<int pack>(std::integral_constant<int, pack>) {
      for_columns<pack>(cols, [&](std::int64_t c) {
        forward_pack(kind, ActivationInputs<Kind, pack, T>(x + c, bias ? bias + c : nullptr, cols), y + c);
      });
    };
    if (row >= work.segments.rows[e]) {
      clear_row(y, cols);
    } else if (cols % width == 0 && is_aligned(x) && is_aligned(y) && is_aligned(bias)) {
      forward(std::integral_constant<int, width>());
    } else {
      forward(std::integral_constant<int, 1>());
    }
  }
}

template <class Kind, class T>
__global__ void __launch_bounds__(activation_threads)
    activation_backward(ActivationBackward<T> work, IndexCheck widths, IndexCheck gates) {
  constexpr int width = pack_width<T>;
  constexpr std::int64_t inputs = Kind::inputs;
  const Kind kind(work.function);
  const std::int64_t total = work.segments.total();
  for (std::int64_t r = blockIdx.x; r < total; r += gridDim.x) {
    const std::int64_t e = segment_of(work.segments, r), row = r - work.segments.begin[e];
    const std::int64_t cols = work.y.width[e];
    if (!widths.passes(work.x.width[e] - inputs * cols) || !widths.passes(work.dx.width[e] - inputs * cols) ||
        !widths.passes(work.dy.width[e] - cols)) {
      continue;
    }
    const T* x = work.x.data + work.x.offset[e] + row * inputs * cols;
    const T* bias = work.bias.empty() ? nullptr : work.bias[e];
    const T* dy = work.dy.data + work.dy.offset[e] + row * cols;
    T* dx = work.dx.data + work.dx.offset[e] + row * inputs * cols;
    T* y = work.y.data + work.y.offset[e] + row * cols;
    if (row >= work.segments.rows[e]) {
      clear_row(dx, inputs * cols);
      clear_row(y, cols);
      continue;
    }
    const std::int64_t index = work.gates ? work.gates.index[r] : -1;
    const bool has_gate = index >= 0 && gates.passes(index);
    const Accumulator<T> gate = has_gate ? work.gates.gate[index] : Accumulator<T>(work.gates ? 0 : 1);
    Accumulator<T> d_gate = 0;
    const auto backward = [&]<int pack>(std::integral_constant<int, pack>) {
      for_columns<pack>(cols, [&](std::int64_t c) {
        backward_pack(kind, ActivationInputs<Kind, pack, T>(x + c, bias ? bias + c : nullptr, cols), dy + c, gate, cols,
                      dx + c, y + c, d_gate);
      });
    };
    if (cols % width == 0 && is_aligned(x) && is_aligned(bias) && is_aligned(dy) && is_aligned(dx) && is_aligned(y)) {
      backward(std::integral_constant<int, width>());
    } else {
      backward(std::integral_constant<int, 1>());
    }
    if (!work.gates) continue;
    d_gate = join_block<activation_threads>(d_gate, Sum{});
    if (has_gate && threadIdx.x == 0) work.gates.d_gate[index] = d_gate;
  }
}

/// Throws an Error unless there is a bias for each segment, or none.
template <class T>
void require_biases(std::string_view kernel, const SegmentVectors<const T>& bias, const Segments& segments) {
  if (!bias.empty()) require_length(kernel, "bias", bias, segments.count());
}

/// Returns the instance of a kernel for the kind of activation.
template <class Kernel>
Kernel for_kind(Activation kind, Kernel swiglu, Kernel gelu, Kernel clamped_swiglu) {
  switch (kind) {
    case Activation::swiglu: return swiglu;
    case Activation::gelu: return gelu;
    default: return clamped_swiglu;
  }
}

void require_layouts(std::string_view kernel, const Segments& segments, std::span<const std::int64_t> given,
                     std::span<const std::int64_t> width) {
  require_length(kernel, "begin", segments.begin, segments.count() + 1);
  require_length(kernel, "width of y", width, segments.count());
  require_length(kernel, "width of x", given, segments.count());
}

/// Checks the widths of rows, which are in device memory: rows of the wrong width are skipped, and the fault is
/// recorded.
IndexCheck excess_width(const CudaStream& stream, const char* kernel) {
  return {stream, kernel, "the width of a row, minus the required width,", 0, 1};
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const ActivationForward<T>& work) {
  if (work.segments.count() == 0) return;
  require_layouts("ActivationForward", work.segments, work.x.width, work.y.width);
  require_biases("ActivationForward", work.bias, work.segments);
  const auto kernel = for_kind(work.function.kind, activation_forward<Swiglu, T>, activation_forward<Gelu, T>,
                               activation_forward<ClampedSwiglu, T>);
  start(stream, "ActivationForward", kernel, blocks_per_processor * stream.processors(), activation_threads, work,
        excess_width(stream, "ActivationForward"));
}

template <class T>
void run(const CudaStream& stream, const ActivationBackward<T>& work) {
  const auto& gates = work.gates;
  require_length("ActivationBackward", "d_gate", gates.d_gate, static_cast<std::int64_t>(gates.gate.size()));
  if (gates.d_gate.size_bytes()) {
    check(cudaMemsetAsync(gates.d_gate.data(), 0, gates.d_gate.size_bytes(), stream.handle()), "ActivationBackward");
  }
  if (work.segments.count() == 0) return;
  require_layouts("ActivationBackward", work.segments, work.x.width, work.y.width);
  require_layouts("ActivationBackward", work.segments, work.dx.width, work.dy.width);
  require_biases("ActivationBackward", work.bias, work.segments);
  const auto kernel = for_kind(work.function.kind, activation_backward<Swiglu, T>, activation_backward<Gelu, T>,
                               activation_backward<ClampedSwiglu, T>);
  const IndexCheck of_gates(stream, "ActivationBackward", "index of a gate", 0, std::ssize(gates.gate));
  start(stream, "ActivationBackward", kernel, blocks_per_processor * stream.processors(), activation_threads, work,
        excess_width(stream, "ActivationBackward"), of_gates);
}

LYCEUM_ACTIVATION_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

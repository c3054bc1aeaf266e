#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/segments.cuh"
#include "kernels/segment_bias.h"
#include "kernels/segment_bias_checks.h"

namespace lyceum {

namespace {

constexpr int segment_bias_threads = 256, segment_bias_warps = segment_bias_threads / warp_size;

/// The checks of widths, sources and gates, which are in device memory. What fails is left out, and the fault is
/// recorded.
struct SegmentBiasChecks {
  IndexCheck excess, sources, gates;

  SegmentBiasChecks(const CudaStream& stream, const char* kernel, std::int64_t source_bound, std::int64_t gate_bound)
      : excess(stream, kernel, "the width of a row, minus the last column with a bias,", 0, INT64_MAX),
        sources(stream, kernel, "source", INT64_MIN, source_bound),
        gates(stream, kernel, "index of a gate", INT64_MIN, gate_bound) {}

  /// Returns the elements to which the bias belongs, as bias_columns_of_row() does; null also if a check fails.
  template <class Work>
  __device__ auto row(const Work& work, std::int64_t e, std::int64_t row) const
      -> decltype(bias_columns_of_row(work, e, row)) {
    if (work.picked && !sources.passes(work.picked.source[work.segments.begin[e] + row])) return nullptr;
    return bias_columns_of_row(work, e, row);
  }
};

/// One thread block per row, in a grid-stride loop over all rows including padding: the number of rows and their widths
/// are known on the device only.
template <class T>
__global__ void __launch_bounds__(segment_bias_threads) add_segment_bias(AddSegmentBias<T> add, IndexCheck excess) {
  constexpr int width = pack_width<T>;
  const std::int64_t total = add.segments.total();
  for (std::int64_t r = blockIdx.x; r < total; r += gridDim.x) {
    const std::int64_t e = segment_of(add.segments, r), row = r - add.segments.begin[e];
    if (row >= add.segments.rows[e]) continue;
    const std::int64_t all = add.y.width[e], cols = bias_width(add.columns, all);
    if (!excess.passes(all - add.columns.first - cols)) continue;
    T* y = add.y.data + add.y.offset[e] + row * all + add.columns.first;
    const T* bias = add.bias[e];
    const auto add_columns = [&]<int pack>(std::integral_constant<int, pack>) {
      for (std::int64_t c = threadIdx.x * pack; c < cols; c += segment_bias_threads * pack) {
        auto values = load<pack>(y + c);
        const auto biases = load<pack>(bias + c);
        for (int i = 0; i < pack; ++i) values[i] = narrow<T>(widen(values[i]) + widen(biases[i]));
        store(y + c, values);
      }
    };
    if (cols % width == 0 && is_aligned(y) && is_aligned(bias)) {
      add_columns(std::integral_constant<int, width>());
    } else {
      add_columns(std::integral_constant<int, 1>());
    }
  }
}

/// One thread block per segment and per warp_size columns, in grid-stride loops. Warp w sums every
/// segment_bias_warps-th row, from row w on; then the warps' sums are added in order.
template <class T>
__global__ void __launch_bounds__(segment_bias_threads)
    segment_bias_grad(SegmentBiasGrad<T> sum, SegmentBiasChecks checks) {
  using A = Accumulator<T>;
  __shared__ A sums[segment_bias_warps][warp_size];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  for (std::int64_t e = blockIdx.y; e < sum.segments.count(); e += gridDim.y) {
    A* d_bias = sum.d_bias[e];
    const std::int64_t rows = sum.segments.rows[e], begin = sum.segments.begin[e];
    const std::int64_t all = sum.dy.width[e], cols = bias_width(sum.columns, all);
    if (!d_bias || rows == 0 || !checks.excess.passes(all - sum.columns.first - cols)) continue;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * warp_size; first < cols;
         first += static_cast<std::int64_t>(gridDim.x) * warp_size) {
      const std::int64_t c = first + lane;
      A own = 0;
      for (std::int64_t r = warp; r < rows && c < cols; r += segment_bias_warps) {
        const T* dy = checks.row(sum, e, r);
        const std::int64_t index = sum.gate_of_row.empty() ? 0 : sum.gate_of_row[begin + r];
        if (!dy || index < 0 || !checks.gates.passes(index)) continue;
        own += (sum.gate_of_row.empty() ? A{1} : sum.gate[index]) * widen(dy[c]);
      }
      __syncthreads();  // all threads have read the sums of the previous columns
      sums[warp][lane] = own;
      __syncthreads();
      if (warp > 0 || c >= cols) continue;
      A total = 0;
      for (int w = 0; w < segment_bias_warps; ++w) total += sums[w][lane];
      d_bias[c] += total;
    }
  }
}

/// One thread block per row, in a grid-stride loop.
template <class T>
__global__ void __launch_bounds__(segment_bias_threads)
    segment_bias_gate_grad(SegmentBiasGateGrad<T> sum, SegmentBiasChecks checks) {
  using A = Accumulator<T>;
  const std::int64_t total = sum.segments.total();
  for (std::int64_t r = blockIdx.x; r < total; r += gridDim.x) {
    const std::int64_t e = segment_of(sum.segments, r), row = r - sum.segments.begin[e];
    if (row >= sum.segments.rows[e]) continue;
    const std::int64_t index = sum.gates.index[r], all = sum.dy.width[e], cols = bias_width(sum.columns, all);
    if (index < 0 || !checks.gates.passes(index) || !checks.excess.passes(all - sum.columns.first - cols)) continue;
    const T* dy = checks.row(sum, e, row);
    if (!dy) continue;
    A dot = 0;
    for (std::int64_t c = threadIdx.x; c < cols; c += segment_bias_threads) dot += widen(dy[c]) * widen(sum.bias[e][c]);
    dot = join_block<segment_bias_threads>(dot, Sum{});
    if (threadIdx.x == 0) sum.gates.d_gate[index] += dot;
  }
}

template <class T>
std::int64_t source_bound(const PickedRows<T>& picked) {
  return picked.x.rows * picked.divisor;
}

unsigned blocks_of_rows(const CudaStream& stream) { return 16 * static_cast<unsigned>(stream.processors()); }

}  // namespace

template <class T>
void run(const CudaStream& stream, const AddSegmentBias<T>& add) {
  if (add.segments.count() == 0) return;
  require_segments("AddSegmentBias", add, add.y, add.bias);
  const SegmentBiasChecks checks(stream, "AddSegmentBias", 0, 0);
  start(stream, "AddSegmentBias", add_segment_bias<T>, blocks_of_rows(stream), segment_bias_threads, add,
        checks.excess);
}

template <class T>
void run(const CudaStream& stream, const SegmentBiasGrad<T>& sum) {
  const std::int64_t count = sum.segments.count();
  if (count == 0) return;
  require_segments("SegmentBiasGrad", sum, sum.dy, sum.d_bias);
  const std::int64_t gates = sum.gate_of_row.empty() ? 1 : static_cast<std::int64_t>(sum.gate.size());
  const dim3 grid(64, blocks_for(count < 65535 ? count : 65535));
  start(stream, "SegmentBiasGrad", segment_bias_grad<T>, grid, segment_bias_threads, sum,
        SegmentBiasChecks(stream, "SegmentBiasGrad", source_bound(sum.picked), gates));
}

template <class T>
void run(const CudaStream& stream, const SegmentBiasGateGrad<T>& sum) {
  if (sum.segments.count() == 0) return;
  require_segments("SegmentBiasGateGrad", sum, sum.dy, sum.bias);
  start(stream, "SegmentBiasGateGrad", segment_bias_gate_grad<T>, blocks_of_rows(stream), segment_bias_threads, sum,
        SegmentBiasChecks(stream, "SegmentBiasGateGrad", source_bound(sum.picked),
                          static_cast<std::int64_t>(sum.gates.d_gate.size())));
}

LYCEUM_SEGMENT_BIAS_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

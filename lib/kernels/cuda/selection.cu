#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/selection.h"

namespace lyceum {

namespace {

constexpr int threads = 128, warps = threads / warp_size;

template <class A>
__global__ void __launch_bounds__(threads) normalize_gates(NormalizeGates<A> normalize) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (t >= normalize.gates.rows) return;
  A* row = normalize.gates.row(t);
  A sum = 0;
  for (std::int64_t j = 0; j < normalize.gates.cols; ++j) sum += row[j];
  for (std::int64_t j = 0; j < normalize.gates.cols; ++j) row[j] /= sum;
  normalize.sums[t] = sum;
}

/// A warp a token. Gates g = v / Σv: dv_j = (dg_j − Σ_i g_i dg_i) / Σv.
template <class A>
__global__ void __launch_bounds__(threads) selection_backward(SelectionBackward<A> selection) {
  const std::int64_t k = selection.gates.cols, lane = threadIdx.x % warp_size;
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (t >= selection.gates.rows) return;  // whole warps
  A* d_scores = selection.d_scores.row(t);
  const A* d_gates = selection.d_gates.row(t);
  for (std::int64_t c = lane; c < selection.d_scores.cols; c += warp_size) d_scores[c] = 0;
  A mean = 0, sum = 1;
  if (!selection.sums.empty()) {
    for (std::int64_t j = 0; j < k; ++j) mean += selection.gates.row(t)[j] * d_gates[j];
    sum = selection.sums[t];
  }
  __syncwarp();
  for (std::int64_t j = lane; j < k; j += warp_size) {
    d_scores[selection.index.row(t)[j]] = (d_gates[j] - mean) / sum;
  }
}

/// A block a sequence and a warp's width of experts: warp w adds up every warps-th token from w on, then the warps'
/// sums are added in order.
template <class A>
__global__ void __launch_bounds__(threads) sequence_load(SequenceLoad<A> load) {
  __shared__ A sums[warps][warp_size];
  __shared__ int counts[warp_size];
  const std::int64_t s = blockIdx.x, first_expert = static_cast<std::int64_t>(blockIdx.y) * warp_size;
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int64_t i = first_expert + lane, experts = load.scores.cols;
  const std::int64_t from = s * load.seq_len - load.first, to = from + load.seq_len;
  const std::int64_t begin = from > 0 ? from : 0, end = to < load.scores.rows ? to : load.scores.rows;
  if (threadIdx.x < warp_size) counts[threadIdx.x] = 0;
  A sum = 0;
  for (std::int64_t t = begin + warp; t < end && i < experts; t += warps) sum += load.scores.row(t)[i];
  sums[warp][lane] = sum;
  __syncthreads();
  const std::int64_t k = load.index.cols;
  for (std::int64_t p = begin * k + threadIdx.x; p < end * k; p += threads) {
    const std::int64_t expert = load.index.row(p / k)[p % k] - first_expert;
    if (expert >= 0 && expert < warp_size) atomicAdd(counts + expert, 1);  // integers: in any order
  }
  __syncthreads();
  if (warp != 0 || i >= experts) return;
  A total = 0;
  for (int w = 0; w < warps; ++w) total += sums[w][lane];
  load.mean_probability.row(s)[i] = total / static_cast<A>(load.seq_len);
  load.count.row(s)[i] = static_cast<A>(counts[lane]);
}

template <class A>
__global__ void __launch_bounds__(threads) spread(SpreadOverSequence<A> over) {
  const std::int64_t cols = over.d_scores.cols, count = over.d_scores.size();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride) {
    const std::int64_t t = i / cols;
    over.d_scores.row(t)[i % cols] = over.slope.row((over.first + t) / over.seq_len)[i % cols];
  }
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const NormalizeGates<A>& normalize) {
  const auto blocks = static_cast<unsigned>((normalize.gates.rows + threads - 1) / threads);
  start(stream, "NormalizeGates", normalize_gates<A>, blocks, threads, normalize);
}

template <class A>
void run(const CudaStream& stream, const SelectionBackward<A>& selection) {
  const auto blocks = static_cast<unsigned>((selection.gates.rows + warps - 1) / warps);
  start(stream, "SelectionBackward", selection_backward<A>, blocks, threads, selection);
}

template <class A>
void run(const CudaStream& stream, const SequenceLoad<A>& load) {
  const dim3 grid(static_cast<unsigned>(load.count.rows),
                  static_cast<unsigned>((load.scores.cols + warp_size - 1) / warp_size));
  start(stream, "SequenceLoad", sequence_load<A>, grid, threads, load);
}

template <class A>
void run(const CudaStream& stream, const SpreadOverSequence<A>& over) {
  start(stream, "SpreadOverSequence", spread<A>, blocks_for(over.d_scores.size(), threads), threads, over);
}

template void run(const CudaStream&, const NormalizeGates<float>&);
template void run(const CudaStream&, const NormalizeGates<double>&);
template void run(const CudaStream&, const SelectionBackward<float>&);
template void run(const CudaStream&, const SelectionBackward<double>&);
template void run(const CudaStream&, const SequenceLoad<float>&);
template void run(const CudaStream&, const SequenceLoad<double>&);
template void run(const CudaStream&, const SpreadOverSequence<float>&);
template void run(const CudaStream&, const SpreadOverSequence<double>&);

}  // namespace lyceum

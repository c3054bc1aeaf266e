#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/router.h"

namespace lyceum {

namespace {

constexpr int threads = 128, warps = threads / warp_size;  // a warp a row
constexpr std::int64_t local_counts = 4096;

__device__ std::int64_t first_row() { return static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size; }
__device__ std::int64_t row_stride() { return static_cast<std::int64_t>(gridDim.x) * warps; }
__device__ std::int64_t first_col() { return threadIdx.x % warp_size; }

template <class A>
__global__ void __launch_bounds__(threads) softmax_forward(SoftmaxForward<A> softmax) {
  const std::int64_t cols = softmax.x.cols;
  for (std::int64_t r = first_row(); r < softmax.x.rows; r += row_stride()) {
    const A* x = softmax.x.row(r);
    A* y = softmax.y.row(r);
    A largest = -std::numeric_limits<A>::infinity(), sum = 0;
    for (std::int64_t c = first_col(); c < cols; c += warp_size) largest = Largest{}(largest, x[c]);
    largest = join_warp(largest, Largest{});
    for (std::int64_t c = first_col(); c < cols; c += warp_size) {
      y[c] = std::exp(x[c] - largest);
      sum += y[c];
    }
    sum = join_warp(sum, Sum{});
    const A inverse = A{1} / sum;
    for (std::int64_t c = first_col(); c < cols; c += warp_size) y[c] *= inverse;
    if (first_col() == 0 && !softmax.log_sum_exp.empty()) softmax.log_sum_exp[r] = largest + std::log(sum);
  }
}

template <class A>
__global__ void __launch_bounds__(threads) softmax_backward(SoftmaxBackward<A> softmax) {
  const std::int64_t cols = softmax.y.cols;
  for (std::int64_t r = first_row(); r < softmax.y.rows; r += row_stride()) {
    const A* y = softmax.y.row(r);
    const A* dy = softmax.dy.row(r);
    A* dx = softmax.dx.row(r);
    A dot = 0;
    for (std::int64_t c = first_col(); c < cols; c += warp_size) dot += dy[c] * y[c];
    dot = join_warp(dot, Sum{});
    for (std::int64_t c = first_col(); c < cols; c += warp_size) dx[c] = y[c] * (dy[c] - dot);
  }
}

/// Whether score a of index i stands before score b of index j: the larger first, numbers before NaNs, then by index.
/// Negative indices are of nobody, who stands behind all.
template <class A>
__device__ bool before(A a, std::int32_t i, A b, std::int32_t j) {
  if (i < 0 || j < 0) return i >= 0;
  const bool a_nan = std::isnan(a), b_nan = std::isnan(b);
  if (a_nan != b_nan) return b_nan;
  return a > b || (!(a < b) && i < j);
}

/// The j-th best is the best of those that stand behind the one before: nothing need be marked as taken.
template <class A>
__global__ void __launch_bounds__(threads) select_top(TopK<A> top) {
  const std::int64_t cols = top.scores.cols, k = top.index.cols;
  for (std::int64_t r = first_row(); r < top.scores.rows; r += row_stride()) {
    const A* scores = top.scores.row(r);
    A last = 0;
    std::int32_t last_index = -1;
    for (std::int64_t j = 0; j < k; ++j) {
      A best = 0;
      std::int32_t best_index = -1;
      for (std::int64_t c = first_col(); c < cols; c += warp_size) {
        const auto i = static_cast<std::int32_t>(c);
        const bool behind = j == 0 || before(last, last_index, scores[c], i);
        if (behind && before(scores[c], i, best, best_index)) {
          best = scores[c];
          best_index = i;
        }
      }
      for (int distance = 1; distance < warp_size; distance *= 2) {
        const A other = __shfl_xor_sync(whole_warp, best, distance);
        const std::int32_t other_index = __shfl_xor_sync(whole_warp, best_index, distance);
        if (before(other, other_index, best, best_index)) {
          best = other;
          best_index = other_index;
        }
      }
      last = best;
      last_index = best_index;
      if (first_col() == 0) {
        top.index.row(r)[j] = best_index;
        top.value.row(r)[j] = best;
      }
    }
  }
}

/// Integers are added atomically: their sum does not depend on the order. A block counts for itself first, where there
/// is room.
__global__ void __launch_bounds__(threads) count_choices(CountChoices count, IndexCheck check) {
  __shared__ int local[local_counts];
  const std::int64_t experts = count.counts.cols, k = count.index.cols, size = k * experts, pairs = count.index.size();
  const bool fits = size <= local_counts;
  const auto add = [&](std::int64_t place, int times) {
    auto* total = count.counts.row(place / experts) + place % experts;
    atomicAdd(reinterpret_cast<unsigned long long*>(total), static_cast<unsigned long long>(times));
  };
  for (std::int64_t i = threadIdx.x; fits && i < size; i += threads) local[i] = 0;
  __syncthreads();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; p < pairs; p += stride) {
    const std::int32_t expert = count.index.row(p / k)[p % k];
    if (!check.passes(expert)) continue;
    const std::int64_t place = p % k * experts + expert;
    if (fits) {
      atomicAdd(local + place, 1);
    } else {
      add(place, 1);
    }
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; fits && i < size; i += threads) {
    if (local[i]) add(i, local[i]);
  }
}

template <class A>
__global__ void __launch_bounds__(threads) choose_evenly(EvenChoices<A> even) {
  const std::int64_t k = even.index.cols, experts = even.scores.cols, pairs = even.index.size();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; p < pairs; p += stride) {
    even.index.row(p / k)[p % k] = static_cast<std::int32_t>(p % experts);
    even.value.row(p / k)[p % k] = even.scores.row(p / k)[p % experts];
  }
}

/// A block some columns, a lane each: warp w adds up every warps-th row from w on, then the warps' sums are added.
constexpr int column_threads = 1024, column_warps = column_threads / warp_size;

template <class A>
__global__ void __launch_bounds__(column_threads) sum_columns(SumColumns<A> sum) {
  __shared__ double partial[column_warps][warp_size];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * warp_size + lane;
  double own = 0;
  if (c < sum.x.cols) {
    for (std::int64_t r = warp; r < sum.x.rows; r += column_warps) own += static_cast<double>(sum.x.row(r)[c]);
  }
  partial[warp][lane] = own;
  __syncthreads();
  if (warp != 0 || c >= sum.x.cols) return;
  double total = sum.sums[c];
  for (int w = 0; w < column_warps; ++w) total += partial[w][lane];
  sum.sums[c] = total;
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const SumColumns<A>& sum) {
  require_length("SumColumns", "sums", sum.sums, sum.x.cols);
  start(stream, "SumColumns", sum_columns<A>, blocks_for(sum.x.cols, warp_size), column_threads, sum);
}

template <class A>
void run(const CudaStream& stream, const SoftmaxForward<A>& softmax) {
  const std::int64_t rows = softmax.x.rows, cols = softmax.x.cols;
  require_extents("SoftmaxForward", "y", softmax.y, rows, cols);
  if (!softmax.log_sum_exp.empty()) require_length("SoftmaxForward", "log_sum_exp", softmax.log_sum_exp, rows);
  start(stream, "SoftmaxForward", softmax_forward<A>, blocks_for(rows, warps), threads, softmax);
}

template <class A>
void run(const CudaStream& stream, const SoftmaxBackward<A>& softmax) {
  const std::int64_t rows = softmax.y.rows, cols = softmax.y.cols;
  require_extents("SoftmaxBackward", "dy", softmax.dy, rows, cols);
  require_extents("SoftmaxBackward", "dx", softmax.dx, rows, cols);
  start(stream, "SoftmaxBackward", softmax_backward<A>, blocks_for(rows, warps), threads, softmax);
}

template <class A>
void run(const CudaStream& stream, const TopK<A>& top) {
  const std::int64_t rows = top.scores.rows, cols = top.scores.cols, k = top.index.cols;
  require_extents("TopK", "index", top.index, rows, k);
  require_extents("TopK", "value", top.value, rows, k);
  require(k <= cols, "TopK: {} experts a token out of {}", k, cols);
  if (k == 0) return;
  start(stream, "TopK", select_top<A>, blocks_for(rows, warps), threads, top);
}

template <class A>
void run(const CudaStream& stream, const EvenChoices<A>& even) {
  const std::int64_t rows = even.scores.rows, k = even.index.cols;
  require_extents("EvenChoices", "index", even.index, rows, k);
  require_extents("EvenChoices", "value", even.value, rows, k);
  require(k <= even.scores.cols, "EvenChoices: {} experts a token out of {}", k, even.scores.cols);
  start(stream, "EvenChoices", choose_evenly<A>, blocks_for(even.index.size(), threads), threads, even);
}

void run(const CudaStream& stream, const CountChoices& count) {
  require_extents("CountChoices", "counts", count.counts, count.index.cols, count.counts.cols);
  const unsigned blocks = std::min(blocks_for(count.index.size(), threads), 2u * stream.processors());
  start(stream, "CountChoices", count_choices, blocks, threads, count,
        IndexCheck(stream, "CountChoices", "index", 0, count.counts.cols));
}

template void run(const CudaStream&, const SoftmaxForward<float>&);
template void run(const CudaStream&, const SoftmaxForward<double>&);
template void run(const CudaStream&, const SoftmaxBackward<float>&);
template void run(const CudaStream&, const SoftmaxBackward<double>&);
template void run(const CudaStream&, const TopK<float>&);
template void run(const CudaStream&, const TopK<double>&);
template void run(const CudaStream&, const EvenChoices<float>&);
template void run(const CudaStream&, const EvenChoices<double>&);
template void run(const CudaStream&, const SumColumns<float>&);
template void run(const CudaStream&, const SumColumns<double>&);

}  // namespace lyceum

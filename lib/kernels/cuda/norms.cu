#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/norms.h"

namespace lyceum {

namespace {

constexpr int norms_threads = 256;

__device__ double square(double x) { return x * x; }

/// Returns Σ x² of one block of a tensor; all lanes of a warp call it. Each lane reads four neighbours at a time,
/// whether or not they are aligned, so the order of summation does not depend on where the tensor begins.
template <class A>
__device__ double squares_of_block(const A* x, std::int64_t count) {
  constexpr int width = 4, stride = warp_size * width;
  const bool packed = is_aligned(x);
  double sum = 0;
  if (packed && count == flat_block) {  // all loads are issued together
    Pack<A, width> packs[flat_block / stride];
    x += threadIdx.x % warp_size * width;
#pragma unroll
    for (int i = 0; i < flat_block / stride; ++i) packs[i] = load<width>(x + i * stride);
#pragma unroll
    for (int i = 0; i < flat_block / stride; ++i) {
      for (int e = 0; e < width; ++e) sum += square(static_cast<double>(packs[i][e]));
    }
    return join_warp(sum, Sum{});
  }
  for (std::int64_t i = threadIdx.x % warp_size * width; i < count; i += stride) {
    if (packed && i + width <= count) {
      const auto pack = load<width>(x + i);
      for (int e = 0; e < width; ++e) sum += square(static_cast<double>(pack[e]));
    } else {
      for (int e = 0; e < width && i + e < count; ++e) sum += square(static_cast<double>(x[i + e]));
    }
  }
  return join_warp(sum, Sum{});
}

template <class A>
__global__ void __launch_bounds__(norms_threads) sum_squares_of_tensors(SquaresOfTensors<A> squares) {
  constexpr int warps = norms_threads / warp_size;
  const std::int64_t walkers = static_cast<std::int64_t>(gridDim.x) * warps;
  const std::int64_t self = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  const std::int64_t first = squares.blocks * self / walkers, last = squares.blocks * (self + 1) / walkers;
  if (first == last) return;
  BlockWalk<TensorRow<A>> walk(squares.tensors, first);
  for (std::int64_t at = first; at < last; ++at, walk.next()) {
    const std::int64_t offset = squares.offsets[walk.row()], begin = walk.block() * flat_block;
    if (offset < 0) continue;
    const std::int64_t rest = walk.tensor().count - begin;
    const double sum = squares_of_block(walk.tensor().x + begin, rest < flat_block ? rest : flat_block);
    if (threadIdx.x % warp_size == 0) squares.sums[offset + walk.block()] = sum;
  }
}

/// One thread block per sum, which may have hundreds of thousands of terms.
constexpr int range_threads = 1024;
__global__ void __launch_bounds__(range_threads) sum_ranges(SumRanges sum) {
  const auto outputs = static_cast<std::int64_t>(sum.y.size());
  for (std::int64_t o = blockIdx.x; o < outputs; o += gridDim.x) {
    double all = 0;
    for (std::int64_t r = sum.begin[o]; r < sum.begin[o + 1]; ++r) {
      const double* x = sum.x.data() + sum.ranges[r].first;
      for (std::int64_t i = threadIdx.x; i < sum.ranges[r].count; i += range_threads) all += x[i];
    }
    all = join_block<range_threads>(all, Sum{});
    if (threadIdx.x == 0) sum.y[o] = all;
  }
}

/// One thread per column.
__global__ void __launch_bounds__(warp_size) norms_of_layers(NormsOfLayers join) {
  const auto columns = static_cast<std::int64_t>(join.norms.size()), part = columns * join.layers;
  for (std::int64_t c = blockIdx.x * warp_size + threadIdx.x; c < columns; c += gridDim.x * warp_size) {
    const double* x = join.x.data() + c * join.layers;
    double sum = 0;
    for (std::int64_t l = 0; l < join.layers; ++l) {
      const double of_layer = x[l] + x[part + l] + x[2 * part + l] + x[3 * part + l];
      sum += of_layer;
      if (!join.by_layer.empty()) join.by_layer[c * join.layers + l] = std::sqrt(of_layer);
    }
    join.norms[c] = std::sqrt(sum);
  }
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const SquaresOfTensors<A>& squares) {
  require_length("SquaresOfTensors", "offsets", squares.offsets, static_cast<std::int64_t>(squares.tensors.size()));
  // Enough warps for every multiprocessor. Each processes a contiguous range of blocks and therefore searches the
  // table only once.
  const std::int64_t most = std::int64_t{stream.processors()} * 32;
  const auto grid =
      static_cast<unsigned>(std::min<std::int64_t>(most, blocks_for(squares.blocks, norms_threads / warp_size)));
  start(stream, "SquaresOfTensors", sum_squares_of_tensors<A>, grid, norms_threads, squares);
}

void run(const CudaStream& stream, const SumRanges& sum) {
  const auto outputs = static_cast<std::int64_t>(sum.y.size());
  require_length("SumRanges", "begin", sum.begin, outputs + 1);
  start(stream, "SumRanges", sum_ranges, blocks_for(outputs), range_threads, sum);
}

void run(const CudaStream& stream, const NormsOfLayers& join) {
  const auto columns = static_cast<std::int64_t>(join.norms.size());
  require_length("NormsOfLayers", "x", join.x, NormsOfLayers::kinds * columns * join.layers);
  if (!join.by_layer.empty()) require_length("NormsOfLayers", "by_layer", join.by_layer, columns * join.layers);
  start(stream, "NormsOfLayers", norms_of_layers, blocks_for(columns, warp_size), warp_size, join);
}

LYCEUM_NORMS_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

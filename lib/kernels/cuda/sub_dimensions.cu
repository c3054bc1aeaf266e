#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/sub_dimensions_checks.h"

namespace lyceum {

namespace {

constexpr int sub_dimension_threads = 128;

/// Calls f(i) for every i < count that belongs to this thread of a grid-stride loop.
template <class F>
__device__ void each_own(std::int64_t count, const F& f) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * sub_dimension_threads + threadIdx.x;
  for (std::int64_t i = first; i < count; i += static_cast<std::int64_t>(gridDim.x) * sub_dimension_threads) f(i);
}

/// One thread per token.
template <class A>
__global__ void __launch_bounds__(sub_dimension_threads) make_factors(SubDimensionFactors<A> work) {
  each_own(work.logits.rows, [&](std::int64_t t) {
    const ActiveSubDimensions on(work.always_on, work.index.row(t), work.index.cols);
    compute_factors(work.logits.row(t), work.logits.cols, on, work.scaling, work.factors.row(t));
  });
}

template <class A>
__global__ void __launch_bounds__(sub_dimension_threads) make_factors_backward(SubDimensionFactorsBackward<A> work) {
  each_own(work.logits.rows, [&](std::int64_t t) {
    const ActiveSubDimensions on(work.always_on, work.index.row(t), work.index.cols);
    factors_gradient(work.logits.row(t), work.logits.cols, on, work.scaling, work.d_factors.row(t),
                     work.d_logits.row(t));
  });
}

/// One thread block per sequence. For each tile of tokens, each thread first sums the factors of one token, then adds
/// the tile to its columns of the load, token by token.
template <class A>
__global__ void __launch_bounds__(sub_dimension_threads) load_sub_dimensions(SubDimensionLoad<A> work) {
  __shared__ double sums[sub_dimension_threads];  // Σ c of each token of the tile
  const std::int64_t s = blockIdx.x, tokens = work.factors.rows, count = work.factors.cols;
  const auto here = [&](std::int64_t row) { return row < 0 ? 0 : row < tokens ? row : tokens; };
  const std::int64_t begin = here(s * work.seq_len - work.first), end = here((s + 1) * work.seq_len - work.first);
  double* load = work.load.row(s);
  for (std::int64_t column = threadIdx.x; column < work.load.cols; column += sub_dimension_threads) load[column] = 0;
  for (std::int64_t tile = begin; tile < end; tile += sub_dimension_threads) {
    const std::int64_t tile_end = tile + sub_dimension_threads < end ? tile + sub_dimension_threads : end;
    if (const std::int64_t t = tile + threadIdx.x; t < tile_end) {
      double sum = 0;
      for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(work.factors.row(t)[i]);
      sums[threadIdx.x] = sum;
    }
    __syncthreads();
    for (std::int64_t column = threadIdx.x; column < 2 * count; column += sub_dimension_threads) {
      double own = load[column];
      for (std::int64_t t = tile; t < tile_end; ++t) {
        own += column < count ? work.index.cols > 0 && work.index.row(t)[0] == column
                              : static_cast<double>(work.factors.row(t)[column - count]) / sums[t - tile];
      }
      load[column] = own;
    }
    __syncthreads();  // before the next tile replaces the sums
  }
}

/// One thread per token.
template <class A>
__global__ void __launch_bounds__(sub_dimension_threads)
    load_sub_dimensions_backward(SubDimensionLoadBackward<A> work) {
  const std::int64_t count = work.factors.cols;
  each_own(work.factors.rows, [&](std::int64_t t) {
    const double* slope = work.d_load.row((work.first + t) / work.seq_len) + count;
    shares_gradient(work.factors.row(t), count, slope, work.d_factors.row(t));
  });
}

__global__ void __launch_bounds__(sub_dimension_threads) find_rows(SubDimensionRows rows) {
  each_own(static_cast<std::int64_t>(rows.source.size()),
           [&](std::int64_t r) { rows.source[r] = source_of(rows, rows.pair_of_row[r]); });
}

/// One thread block per token, in a grid-stride loop.
template <class T>
__global__ void __launch_bounds__(sub_dimension_threads)
    place_sub_dimensions(PlaceSubDimensions<T> place, std::int64_t sub_dimensions) {
  const std::int64_t width = place.rows.cols;
  for (std::int64_t t = blockIdx.x; t < place.y.rows; t += gridDim.x) {
    for (std::int64_t i = place.dense.data ? 0 : place.always_on; i < sub_dimensions; ++i) {
      const bool always = i < place.always_on;
      const std::int64_t slot = always ? 0 : slot_of(place, t, i);
      const T* x = always ? place.dense.row(t) + i * width : place.rows.row(slot < 0 ? 0 : slot);
      const Accumulator<T> factor = place.factors.data ? place.factors.row(t)[i] : Accumulator<T>{1};
      for (std::int64_t c = threadIdx.x; c < width; c += sub_dimension_threads) {
        place.y.row(t)[i * width + c] = slot < 0 ? narrow<T>(0) : narrow<T>(factor * widen(x[c]));
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(sub_dimension_threads)
    place_sub_dimensions_backward(PlaceSubDimensionsBackward<T> place, std::int64_t sub_dimensions) {
  using A = Accumulator<T>;
  const std::int64_t width = place.rows.cols;
  for (std::int64_t t = blockIdx.x; t < place.dy.rows; t += gridDim.x) {
    for (std::int64_t i = 0; i < sub_dimensions; ++i) {
      const bool always = i < place.always_on;
      const std::int64_t slot = always ? 0 : slot_of(place, t, i);
      A dot = 0;
      if (slot >= 0) {
        const T *x = always ? place.dense.row(t) + i * width : place.rows.row(slot), *dy = place.dy.row(t) + i * width;
        T* dx = always ? place.d_dense.row(t) + i * width : place.d_rows.row(slot);
        const A factor = place.factors.row(t)[i];
        for (std::int64_t c = threadIdx.x; c < width; c += sub_dimension_threads) {
          const A own = widen(dy[c]);
          dot += own * widen(x[c]);
          dx[c] = narrow<T>(factor * own);
        }
      }
      dot = join_block<sub_dimension_threads>(dot, Sum{});
      if (threadIdx.x == 0) place.d_factors.row(t)[i] = dot;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(sub_dimension_threads) add_pairs(AddPairs<T> add) {
  for (std::int64_t t = blockIdx.x; t < add.y.rows; t += gridDim.x) {
    for (std::int64_t c = threadIdx.x; c < add.y.cols; c += sub_dimension_threads) {
      Accumulator<T> sum = widen(add.y.row(t)[c]);
      for (std::int64_t j = 0; j < add.k; ++j) {
        const std::int64_t slot = add.slot[t * add.k + j];
        if (slot >= 0) sum += widen(add.rows.row(slot)[c]);
      }
      add.y.row(t)[c] = narrow<T>(sum);
    }
  }
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const SubDimensionFactors<A>& work) {
  require_fitting(work);
  start(stream, "SubDimensionFactors", make_factors<A>, blocks_for(work.logits.rows, sub_dimension_threads),
        sub_dimension_threads, work);
}

template <class A>
void run(const CudaStream& stream, const SubDimensionFactorsBackward<A>& work) {
  require_fitting(work);
  start(stream, "SubDimensionFactorsBackward", make_factors_backward<A>,
        blocks_for(work.logits.rows, sub_dimension_threads), sub_dimension_threads, work);
}

template <class A>
void run(const CudaStream& stream, const SubDimensionLoad<A>& work) {
  require_fitting(work);
  start(stream, "SubDimensionLoad", load_sub_dimensions<A>, blocks_for(work.load.rows), sub_dimension_threads, work);
}

template <class A>
void run(const CudaStream& stream, const SubDimensionLoadBackward<A>& work) {
  require_fitting(work);
  start(stream, "SubDimensionLoadBackward", load_sub_dimensions_backward<A>,
        blocks_for(work.factors.rows, sub_dimension_threads), sub_dimension_threads, work);
}

void run(const CudaStream& stream, const SubDimensionRows& rows) {
  require_fitting(rows);
  start(stream, "SubDimensionRows", find_rows, blocks_for(std::ssize(rows.source), sub_dimension_threads),
        sub_dimension_threads, rows);
}

template <class T>
void run(const CudaStream& stream, const PlaceSubDimensions<T>& place) {
  const std::int64_t sub_dimensions = require_fitting(place);
  start(stream, "PlaceSubDimensions", place_sub_dimensions<T>, blocks_for(place.y.rows), sub_dimension_threads, place,
        sub_dimensions);
}

template <class T>
void run(const CudaStream& stream, const PlaceSubDimensionsBackward<T>& place) {
  const std::int64_t sub_dimensions = require_fitting(place);
  start(stream, "PlaceSubDimensionsBackward", place_sub_dimensions_backward<T>, blocks_for(place.dy.rows),
        sub_dimension_threads, place, sub_dimensions);
}

template <class T>
void run(const CudaStream& stream, const AddPairs<T>& add) {
  require_fitting(add);
  start(stream, "AddPairs", add_pairs<T>, blocks_for(add.y.rows), sub_dimension_threads, add);
}

LYCEUM_SUB_DIMENSION_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

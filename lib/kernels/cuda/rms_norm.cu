#include "kernels/checks.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/rms_norm_checks.h"

namespace lyceum {

namespace {

constexpr int rms_threads = 256, rms_warps = rms_threads / warp_size;
/// A row of at most so many packs per lane is kept in the registers of one warp.
constexpr int kept_packs = 6;
static_assert(kept_packs <= rms_warps);  // else join_kept() would have another order than a thread block

/// Calls f(j, c) for each pack j of a row that a lane keeps; c is its first column.
template <int width, class F>
__device__ void for_kept_packs(std::int64_t cols, const F& f) {
#pragma unroll
  for (int j = 0; j < kept_packs; ++j) {
    const std::int64_t c = (j * warp_size + threadIdx.x % warp_size) * width;
    if (c < cols) f(j, c);
  }
}

/// Returns the sum of term(j, c) over the packs that all lanes of a warp keep, in the order of join_block() for a block
/// whose warp j has the packs j.
template <int width, class A, class Term>
__device__ A join_kept(std::int64_t cols, const Term& term) {
  A sum = 0;
#pragma unroll
  for (int j = 0; j < kept_packs; ++j) {
    if (j * warp_size * width >= cols) break;
    const std::int64_t c = (j * warp_size + threadIdx.x % warp_size) * width;
    const A own = join_warp(c < cols ? term(j, c) : A{0}, Sum{});
    sum = j == 0 ? own : sum + own;
  }
  return sum;
}

/// rms_norm_forward() with one warp per row, which reads the row once. The results are those of a thread block with the
/// same packs.
template <class T>
__global__ void __launch_bounds__(rms_threads, 3) rms_norm_forward_by_warps(RmsNormForward<T> norm) {
  using A = Accumulator<T>;
  constexpr int width = pack_width<T>;
  const std::int64_t cols = norm.x.cols, step = static_cast<std::int64_t>(gridDim.x) * rms_warps;
  for (std::int64_t r = blockIdx.x * rms_warps + threadIdx.x / warp_size; r < norm.x.rows; r += step) {
    Pack<T, width> x[kept_packs];
    for_kept_packs<width>(cols, [&](int j, std::int64_t c) { x[j] = load<width>(norm.x.row(r) + c); });
    if (norm.added.data) {
      for_kept_packs<width>(cols, [&](int j, std::int64_t c) {
        const auto others = load<width>(norm.added.row(r) + c);
        for (int e = 0; e < width; ++e) x[j][e] = narrow<T>(widen(x[j][e]) + widen(others[e]));
        store(norm.sum.row(r) + c, x[j]);
      });
    }
    const A sum = join_kept<width, A>(cols, [&](int j, std::int64_t) {
      A squares = 0;
      for (int e = 0; e < width; ++e) squares += widen(x[j][e]) * widen(x[j][e]);
      return squares;
    });
    const A inverse = A{1} / std::sqrt(sum / static_cast<A>(cols) + static_cast<A>(norm.eps));
    if (threadIdx.x % warp_size == 0) norm.inverse_rms[r] = inverse;
    for_kept_packs<width>(cols, [&](int j, std::int64_t c) {
      const auto weight = load<width>(norm.weight.data() + c);
      for (int e = 0; e < width; ++e) x[j][e] = narrow<T>(widen(x[j][e]) * inverse * widen(weight[e]));
      store(norm.y.row(r) + c, x[j]);
    });
  }
}

/// rms_norm_backward() with one warp per row, which reads the row once. The results are those of a thread block with
/// the same packs.
template <class T>
__global__ void __launch_bounds__(rms_threads, 2) rms_norm_backward_by_warps(RmsNormBackward<T> norm) {
  using A = Accumulator<T>;
  constexpr int width = pack_width<T>;
  const std::int64_t cols = norm.x.cols, step = static_cast<std::int64_t>(gridDim.x) * rms_warps;
  for (std::int64_t r = blockIdx.x * rms_warps + threadIdx.x / warp_size; r < norm.x.rows; r += step) {
    Pack<T, width> x[kept_packs], dy[kept_packs];
    for_kept_packs<width>(cols, [&](int j, std::int64_t c) {
      x[j] = load<width>(norm.x.row(r) + c);
      dy[j] = load<width>(norm.dy.row(r) + c);
    });
    const A inverse = norm.inverse_rms[r];
    const A dot = join_kept<width, A>(cols, [&](int j, std::int64_t c) {
      const auto weight = load<width>(norm.weight.data() + c);
      A products = 0;
      for (int e = 0; e < width; ++e) products += widen(dy[j][e]) * widen(weight[e]) * widen(x[j][e]);
      return products;
    });
    const A along_x = dot * inverse * inverse / static_cast<A>(cols);
    for_kept_packs<width>(cols, [&](int j, std::int64_t c) {
      const auto weight = load<width>(norm.weight.data() + c);
      A direct[width] = {};
      if (norm.d_sum.data) {
        const auto sums = load<width>(norm.d_sum.row(r) + c);
        for (int e = 0; e < width; ++e) direct[e] = widen(sums[e]);
      }
      for (int e = 0; e < width; ++e) {
        x[j][e] = narrow<T>(direct[e] + inverse * (widen(dy[j][e]) * widen(weight[e]) - widen(x[j][e]) * along_x));
      }
      store(norm.dx.row(r) + c, x[j]);
    });
  }
}

/// Launches `by_warps` if all operands are `packed` and a row fits into the registers of a warp; else `by_blocks`.
template <int width, class Norm>
void start_norm(const CudaStream& stream, const char* name, bool packed, void (*by_warps)(Norm),
                void (*by_blocks)(Norm), const Norm& norm) {
  if (packed && norm.x.cols <= kept_packs * warp_size * width) {
    start(stream, name, by_warps, blocks_for(norm.x.rows, rms_warps), rms_threads, norm);
  } else {
    start(stream, name, by_blocks, blocks_for(norm.x.rows), rms_threads, norm);
  }
}

/// One thread block per row, in a grid-stride loop. The second pass over the row reads it from the cache.
template <int width, class T>
__global__ void __launch_bounds__(rms_threads) rms_norm_forward(RmsNormForward<T> norm) {
  using A = Accumulator<T>;
  const std::int64_t cols = norm.x.cols;
  for (std::int64_t r = blockIdx.x; r < norm.x.rows; r += gridDim.x) {
    const T* x = norm.x.row(r);
    const T* added = norm.added.data ? norm.added.row(r) : nullptr;
    A sum = 0;
    for (std::int64_t c = threadIdx.x * width; c < cols; c += rms_threads * width) {
      auto values = load<width>(x + c);
      if (added) {
        const auto others = load<width>(added + c);
        for (int e = 0; e < width; ++e) values[e] = narrow<T>(widen(values[e]) + widen(others[e]));
        store(norm.sum.row(r) + c, values);
      }
      for (int e = 0; e < width; ++e) sum += widen(values[e]) * widen(values[e]);
    }
    sum = join_block<rms_threads>(sum, Sum{});
    const A inverse = A{1} / std::sqrt(sum / static_cast<A>(cols) + static_cast<A>(norm.eps));
    if (threadIdx.x == 0) norm.inverse_rms[r] = inverse;
    if (added) x = norm.sum.row(r);  // each thread reads what it wrote itself, so no barrier is needed
    T* y = norm.y.row(r);
    for (std::int64_t c = threadIdx.x * width; c < cols; c += rms_threads * width) {
      const auto values = load<width>(x + c), weight = load<width>(norm.weight.data() + c);
      Pack<T, width> result;
      for (int e = 0; e < width; ++e) result[e] = narrow<T>(widen(values[e]) * inverse * widen(weight[e]));
      store(y + c, result);
    }
  }
}

/// dx = inverse · (dy ⊙ w − x · inverse² · mean(dy ⊙ w ⊙ x))
template <int width, class T>
__global__ void __launch_bounds__(rms_threads) rms_norm_backward(RmsNormBackward<T> norm) {
  using A = Accumulator<T>;
  const std::int64_t cols = norm.x.cols;
  for (std::int64_t r = blockIdx.x; r < norm.x.rows; r += gridDim.x) {
    const T* x = norm.x.row(r);
    const T* dy = norm.dy.row(r);
    const A inverse = norm.inverse_rms[r];
    A dot = 0;
    for (std::int64_t c = threadIdx.x * width; c < cols; c += rms_threads * width) {
      const auto xs = load<width>(x + c), dys = load<width>(dy + c), weight = load<width>(norm.weight.data() + c);
      for (int e = 0; e < width; ++e) dot += widen(dys[e]) * widen(weight[e]) * widen(xs[e]);
    }
    const A along_x = join_block<rms_threads>(dot, Sum{}) * inverse * inverse / static_cast<A>(cols);
    T* dx = norm.dx.row(r);
    const T* d_sum = norm.d_sum.data ? norm.d_sum.row(r) : nullptr;
    for (std::int64_t c = threadIdx.x * width; c < cols; c += rms_threads * width) {
      const auto xs = load<width>(x + c), dys = load<width>(dy + c), weight = load<width>(norm.weight.data() + c);
      A direct[width] = {};
      if (d_sum) {
        const auto sums = load<width>(d_sum + c);
        for (int e = 0; e < width; ++e) direct[e] = widen(sums[e]);
      }
      Pack<T, width> result;
      for (int e = 0; e < width; ++e) {
        result[e] = narrow<T>(direct[e] + inverse * (widen(dys[e]) * widen(weight[e]) - widen(xs[e]) * along_x));
      }
      store(dx + c, result);
    }
  }
}

template <int width, class T>
struct WeightGradTerms {
  RmsNormWeightGrad<T> norm;

  __device__ void add_row(std::int64_t r, std::int64_t c, Accumulator<T> (&sum)[width]) const {
    const auto xs = load<width>(norm.x.row(r) + c), dys = load<width>(norm.dy.row(r) + c);
    const Accumulator<T> inverse = norm.inverse_rms[r];
    for (int e = 0; e < width; ++e) sum[e] += widen(dys[e]) * (widen(xs[e]) * inverse);
  }
};

}  // namespace

template <class T>
void run(const CudaStream& stream, const RmsNormForward<T>& norm) {
  require_fitting(norm);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(norm.x, width) && fits_packs(norm.y, width) && fits_packs(norm.weight, width) &&
                      fits_packs(norm.added, width) && fits_packs(norm.sum, width);
  start_norm<width>(stream, "RmsNormForward", packed, rms_norm_forward_by_warps<T>,
                    packed ? rms_norm_forward<width, T> : rms_norm_forward<1, T>, norm);
}

template <class T>
void run(const CudaStream& stream, const RmsNormBackward<T>& norm) {
  require_fitting(norm);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(norm.x, width) && fits_packs(norm.dy, width) && fits_packs(norm.dx, width) &&
                      fits_packs(norm.weight, width) && fits_packs(norm.d_sum, width);
  start_norm<width>(stream, "RmsNormBackward", packed, rms_norm_backward_by_warps<T>,
                    packed ? rms_norm_backward<width, T> : rms_norm_backward<1, T>, norm);
}

template <class T>
void run(const CudaStream& stream, const RmsNormWeightGrad<T>& norm) {
  require_fitting(norm);
  constexpr int width = pack_width<T>;
  if (fits_packs(norm.x, width) && fits_packs(norm.dy, width)) {
    add_column_sums<width>(stream, "RmsNormWeightGrad", norm.x.rows, norm.d_weight, WeightGradTerms<width, T>{norm});
  } else {
    add_column_sums<1>(stream, "RmsNormWeightGrad", norm.x.rows, norm.d_weight, WeightGradTerms<1, T>{norm});
  }
}

LYCEUM_RMS_NORM_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

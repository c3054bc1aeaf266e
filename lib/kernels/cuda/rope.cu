#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/rope.h"
#include "kernels/rope_checks.h"

namespace lyceum {

namespace {

constexpr int rope_threads = 256;

/// Angles are computed in double: at positions in the thousands, a float has too few bits left for the fraction of a
/// turn.
template <class A>
__global__ void __launch_bounds__(rope_threads) fill_table(RopeTable<A> rope, std::int64_t dim) {
  const std::int64_t half = rope.table.cols / 2, count = rope.table.rows * half;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * rope_threads;
  const double scale = rope.scaling.attention_factor;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * rope_threads + threadIdx.x; i < count; i += stride) {
    const std::int64_t p = i / half, c = i % half;
    const double angle = static_cast<double>(p) * rope_frequency(rope.base, dim, rope.scaling, c);
    rope.table.row(p)[c] = static_cast<A>(scale * std::cos(angle));
    rope.table.row(p)[c + half] = static_cast<A>(scale * std::sin(angle));
  }
}

/// Returns the cosines of row r of x, which the sines follow.
template <class T>
__device__ const Accumulator<T>* angles_of(const Rope<T>& rope, std::int64_t r) {
  const std::int64_t begin = rope.first_keys.empty() ? 0 : rope.first_keys[r];
  return rope.table.row(rope.first_position + r % rope.seq_len - begin);
}

/// Rotates the pairs (x_i, x_{i + half}) of each head. One thread block per row, in a grid-stride loop. Each thread
/// rotates packs of pairs. `head`: columns of a head.
template <int width, class T>
__global__ void __launch_bounds__(rope_threads) rotate_halves(Rope<T> rope, std::int64_t head) {
  using A = Accumulator<T>;
  const std::int64_t half = rope.table.cols / 2, pairs = rope.x.cols / head * half;
  const A turn = rope.inverse ? A{-1} : A{1};
  for (std::int64_t r = blockIdx.x; r < rope.x.rows; r += gridDim.x) {
    const A* cosine = angles_of(rope, r);
    for (std::int64_t p = threadIdx.x * width; p < pairs; p += rope_threads * width) {
      const std::int64_t i = p % half;
      T* low = rope.x.row(r) + p / half * head + rope.first_column + i;
      const auto a = load<width>(low), b = load<width>(low + half);
      const auto c = load<width>(cosine + i), s = load<width>(cosine + half + i);
      Pack<T, width> turned_low, turned_high;
      for (int e = 0; e < width; ++e) {
        const A x = widen(a[e]), y = widen(b[e]), sine = turn * s[e];
        turned_low[e] = narrow<T>(x * c[e] - y * sine);
        turned_high[e] = narrow<T>(y * c[e] + x * sine);
      }
      store(low, turned_low);
      store(low + half, turned_high);
    }
  }
}

/// Rotates the pairs (x_{2i}, x_{2i + 1}) of each head, like rotate_halves(). `width`: pairs that a thread loads at
/// once; with 0, it loads single elements.
template <int width, class T>
__global__ void __launch_bounds__(rope_threads) rotate_neighbours(Rope<T> rope, std::int64_t head) {
  using A = Accumulator<T>;
  constexpr int at_once = width ? width : 1;
  const std::int64_t half = rope.table.cols / 2, pairs = rope.x.cols / head * half;
  const A turn = rope.inverse ? A{-1} : A{1};
  for (std::int64_t r = blockIdx.x; r < rope.x.rows; r += gridDim.x) {
    const A* cosine = angles_of(rope, r);
    for (std::int64_t p = threadIdx.x * at_once; p < pairs; p += rope_threads * at_once) {
      const std::int64_t i = p % half;
      T* at = rope.x.row(r) + p / half * head + rope.first_column + 2 * i;
      Pack<T, 2 * at_once> pack;
      if constexpr (width > 0) {
        pack = load<2 * at_once>(at);
      } else {
        pack[0] = at[0];
        pack[1] = at[1];
      }
      for (int e = 0; e < at_once; ++e) {
        const A x = widen(pack[2 * e]), y = widen(pack[2 * e + 1]), c = cosine[i + e], s = turn * cosine[half + i + e];
        pack[2 * e] = narrow<T>(x * c - y * s);
        pack[2 * e + 1] = narrow<T>(y * c + x * s);
      }
      if constexpr (width > 0) {
        store(at, pack);
      } else {
        at[0] = pack[0];
        at[1] = pack[1];
      }
    }
  }
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const RopeTable<A>& rope) {
  require_fitting(rope);
  start(stream, "RopeTable", fill_table<A>, blocks_for(rope.table.size() / 2, rope_threads), rope_threads, rope,
        frequency_dim(rope));
}

template <class T>
void run(const CudaStream& stream, const Rope<T>& rope) {
  if (rope.x.size() == 0) return;
  require_fitting(rope);
  const std::int64_t half = rope.table.cols / 2, head = head_columns(rope);
  const auto begin = [&](auto kernel) {
    start(stream, "Rope", kernel, blocks_for(rope.x.rows), rope_threads, rope, head);
  };
  constexpr int width = pack_width<T>;
  const bool packed = head % width == 0 && rope.first_column % width == 0 && fits_packs(rope.x, width);
  if (rope.layout == RopeLayout::interleaved) {
    return begin(packed && 2 * half % width == 0 ? rotate_neighbours<width / 2, T> : rotate_neighbours<0, T>);
  }
  begin(packed && half % width == 0 && fits_packs(rope.table, width) ? rotate_halves<width, T> : rotate_halves<1, T>);
}

LYCEUM_ROPE_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/rope.h"

namespace lyceum {

namespace {

constexpr int rope_threads = 256;

/// Angles are computed in double: at positions in the thousands, a float has too few bits left for the fraction of a
/// turn.
template <class A>
__global__ void __launch_bounds__(rope_threads) fill_table(RopeTable<A> rope) {
  const std::int64_t half = rope.table.cols / 2, count = rope.table.rows * half;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * rope_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * rope_threads + threadIdx.x; i < count; i += stride) {
    const std::int64_t p = i / half, c = i % half;
    const double rate = std::pow(rope.base, -static_cast<double>(c) / static_cast<double>(half));
    const double angle = static_cast<double>(p) * rate;
    rope.table.row(p)[c] = static_cast<A>(std::cos(angle));
    rope.table.row(p)[c + half] = static_cast<A>(std::sin(angle));
  }
}

/// One thread block per row, in a grid-stride loop. Each thread rotates packs of pairs (x_i, x_{i + half}).
template <int width, class T>
__global__ void __launch_bounds__(rope_threads) rotate(Rope<T> rope) {
  using A = Accumulator<T>;
  const std::int64_t half = rope.table.cols / 2, pairs = rope.x.cols / 2;
  const A turn = rope.inverse ? A{-1} : A{1};
  for (std::int64_t r = blockIdx.x; r < rope.x.rows; r += gridDim.x) {
    const std::int64_t begin = rope.first_keys.empty() ? 0 : rope.first_keys[r];
    const A* cosine = rope.table.row(rope.first_position + r % rope.seq_len - begin);
    for (std::int64_t p = threadIdx.x * width; p < pairs; p += rope_threads * width) {
      const std::int64_t i = p % half;
      T* low = rope.x.row(r) + p / half * 2 * half + i;
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

}  // namespace

template <class A>
void run(const CudaStream& stream, const RopeTable<A>& rope) {
  require(rope.table.cols % 2 == 0, "RopeTable: heads of {} columns: the dimension must be even", rope.table.cols);
  start(stream, "RopeTable", fill_table<A>, blocks_for(rope.table.size() / 2, rope_threads), rope_threads, rope);
}

template <class T>
void run(const CudaStream& stream, const Rope<T>& rope) {
  const std::int64_t rows = rope.x.rows, cols = rope.x.cols, dim = rope.table.cols, half = dim / 2;
  if (rope.x.size() == 0) return;
  require(dim > 0 && dim % 2 == 0 && cols % dim == 0, "Rope: rows of {} columns are not a whole number of heads of {}",
          cols, dim);
  require(rope.seq_len > 0 && rope.first_position >= 0, "Rope: sequences cannot have {} rows and begin at position {}",
          rope.seq_len, rope.first_position);
  require(rope.first_position + std::min(rope.seq_len, rows) <= rope.table.rows,
          "Rope: {} positions are needed, but the table has {}", rope.first_position + std::min(rope.seq_len, rows),
          rope.table.rows);
  require(rope.first_keys.empty() || std::ssize(rope.first_keys) == rows, "Rope: there are {} first keys for {} rows",
          rope.first_keys.size(), rows);
  constexpr int width = pack_width<T>;
  const bool packed = half % width == 0 && fits_packs(rope.x, width) && fits_packs(rope.table, width);
  start(stream, "Rope", packed ? rotate<width, T> : rotate<1, T>, blocks_for(rows), rope_threads, rope);
}

LYCEUM_ROPE_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

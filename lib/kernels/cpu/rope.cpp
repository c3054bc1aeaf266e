#include "kernels/rope.h"

#include <cmath>

#include "kernels/cpu/parallel_for.h"
#include "kernels/rope_checks.h"

namespace lyceum {

namespace {

/// Rotates the pairs (x_i, x_{i + half}) of one head. `turn`: 1, or −1 for the transposed rotation.
template <class T>
void rotate_halves(T* low, const Accumulator<T>* cosine, std::int64_t half, Accumulator<T> turn) {
  using A = Accumulator<T>;
  const A* sine = cosine + half;
  T* high = low + half;
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const A a = static_cast<A>(low[i]), b = static_cast<A>(high[i]), s = turn * sine[i];
    low[i] = round_to<T>(a * cosine[i] - b * s);
    high[i] = round_to<T>(b * cosine[i] + a * s);
  }
}

/// Rotates the pairs (x_{2i}, x_{2i + 1}) of one head, like rotate_halves().
template <class T>
void rotate_neighbours(T* x, const Accumulator<T>* cosine, std::int64_t half, Accumulator<T> turn) {
  using A = Accumulator<T>;
  const A* sine = cosine + half;
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const A a = static_cast<A>(x[2 * i]), b = static_cast<A>(x[2 * i + 1]), s = turn * sine[i];
    x[2 * i] = round_to<T>(a * cosine[i] - b * s);
    x[2 * i + 1] = round_to<T>(b * cosine[i] + a * s);
  }
}

}  // namespace

template <class A>
void run(const CpuStream& stream, const RopeTable<A>& rope) {
  require_fitting(rope);
  const std::int64_t half = rope.table.cols / 2, dim = frequency_dim(rope);
  const double scale = rope.scaling.attention_factor;
  // Angles are computed in double: for positions in the thousands, a float has too few bits for the fraction of a turn.
  parallel_for(stream, rope.table.rows, rows_per_thread(64 * half), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double rate = rope_frequency(rope.base, dim, rope.scaling, i);
      for (std::int64_t p = first; p < last; ++p) {
        const double angle = static_cast<double>(p) * rate;
        rope.table.row(p)[i] = static_cast<A>(scale * std::cos(angle));
        rope.table.row(p)[i + half] = static_cast<A>(scale * std::sin(angle));
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const Rope<T>& rope) {
  using A = Accumulator<T>;
  if (rope.x.size() == 0) return;
  require_fitting(rope);
  const std::int64_t rows = rope.x.rows, cols = rope.x.cols, half = rope.table.cols / 2, head = head_columns(rope);
  const A turn = rope.inverse ? A{-1} : A{1};
  const auto each_head = [&](const auto& rotate) {
    parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r) {
        const std::int64_t begin = rope.first_keys.empty() ? 0 : rope.first_keys[static_cast<std::size_t>(r)];
        const A* cosine = rope.table.row(rope.first_position + r % rope.seq_len - begin);
        for (T* x = rope.x.row(r); x < rope.x.row(r) + cols; x += head) rotate(x + rope.first_column, cosine);
      }
    });
  };
  if (rope.layout == RopeLayout::half) {
    each_head([&](T* x, const A* cosine) { rotate_halves(x, cosine, half, turn); });
  } else {
    each_head([&](T* x, const A* cosine) { rotate_neighbours(x, cosine, half, turn); });
  }
}

LYCEUM_ROPE_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

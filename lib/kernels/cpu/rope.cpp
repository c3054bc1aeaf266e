#include "kernels/rope.h"

#include <cmath>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

template <class A>
void run(const CpuStream& stream, const RopeTable<A>& rope) {
  const std::int64_t half = rope.table.cols / 2;
  require(rope.table.cols % 2 == 0, "RopeTable: heads of {} columns: the dimension must be even", rope.table.cols);
  // Angles are computed in double: for positions in the thousands, a float has too few bits for the fraction of a turn.
  parallel_for(stream, rope.table.rows, rows_per_thread(64 * half), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double rate = std::pow(rope.base, -static_cast<double>(i) / static_cast<double>(half));
      for (std::int64_t p = first; p < last; ++p) {
        const double angle = static_cast<double>(p) * rate;
        rope.table.row(p)[i] = static_cast<A>(std::cos(angle));
        rope.table.row(p)[i + half] = static_cast<A>(std::sin(angle));
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const Rope<T>& rope) {
  using A = Accumulator<T>;
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
  const A turn = rope.inverse ? A{-1} : A{1};
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t begin = rope.first_keys.empty() ? 0 : rope.first_keys[static_cast<std::size_t>(r)];
      const A* cosine = rope.table.row(rope.first_position + r % rope.seq_len - begin);
      const A* sine = cosine + half;
      for (T* low = rope.x.row(r); low < rope.x.row(r) + cols; low += dim) {
        T* high = low + half;
#pragma omp simd
        for (std::int64_t i = 0; i < half; ++i) {
          const A a = static_cast<A>(low[i]), b = static_cast<A>(high[i]), s = turn * sine[i];
          low[i] = round_to<T>(a * cosine[i] - b * s);
          high[i] = round_to<T>(b * cosine[i] + a * s);
        }
      }
    }
  });
}

LYCEUM_ROPE_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

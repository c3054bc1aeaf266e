#include "kernels/noise.h"

#include <algorithm>

#include "kernels/cpu/parallel_for.h"
#include "kernels/token_noise.h"

namespace lyceum {

namespace {

/// Calls f(row, column, ε) for all elements of a [rows, cols] matrix, in parallel.
template <class A, class F>
void for_each_noise(const CpuStream& stream, const TokenNoise& noise, std::int64_t rows, std::int64_t cols,
                    const F& f) {
  const std::uint64_t key = noise_key(noise.seed);
  const auto step = static_cast<std::uint32_t>(noise.step[0]);
  parallel_for(stream, rows, rows_per_thread(8 * cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      for (std::int64_t c = 0; c < cols; c += 4) {
        const std::array<A, 4> normal = token_noise<A>(key, noise.layer, step, noise.first + r, c / 4);
        for (std::int64_t i = 0; i < std::min<std::int64_t>(4, cols - c); ++i) {
          f(r, c + i, normal[static_cast<std::size_t>(i)]);
        }
      }
    }
  });
}

}  // namespace

template <class A>
void run(const CpuStream& stream, const AddNoise<A>& add) {
  require_fitting(add);
  for_each_noise<A>(stream, add.noise, add.y.rows, add.y.cols, [&](std::int64_t r, std::int64_t c, A normal) {
    add.y.row(r)[c] = add.x.row(r)[c] + normal * softplus(add.scale.row(r)[c]);
  });
}

template <class A>
void run(const CpuStream& stream, const AddNoiseBackward<A>& add) {
  require_fitting(add);
  for_each_noise<A>(stream, add.noise, add.d_scale.rows, add.d_scale.cols,
                    [&](std::int64_t r, std::int64_t c, A normal) {
                      add.d_scale.row(r)[c] = add.dy.row(r)[c] * normal * logistic(add.scale.row(r)[c]);
                    });
}

LYCEUM_NOISE_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

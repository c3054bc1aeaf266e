#include "kernels/rms_norm.h"

#include <cmath>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/rms_norm_checks.h"

namespace lyceum {

namespace {

/// Returns the mean of x².
template <class A, class T>
A mean_square(const T* x, std::int64_t cols) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < cols; ++c) sum += static_cast<A>(x[c]) * static_cast<A>(x[c]);
  return sum / static_cast<A>(cols);
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const RmsNormForward<T>& norm) {
  using A = Accumulator<T>;
  const std::int64_t rows = norm.x.rows, cols = norm.x.cols;
  require_fitting(norm);
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    const T* weight = norm.weight.data();
    for (std::int64_t r = first; r < last; ++r) {
      const T* x = norm.x.row(r);
      if (norm.added.data) {
        const T* added = norm.added.row(r);
        T* sum = norm.sum.row(r);
#pragma omp simd
        for (std::int64_t c = 0; c < cols; ++c) sum[c] = round_to<T>(static_cast<A>(x[c]) + static_cast<A>(added[c]));
        x = sum;
      }
      T* y = norm.y.row(r);
      const A inverse = A{1} / std::sqrt(mean_square<A>(x, cols) + static_cast<A>(norm.eps));
      norm.inverse_rms[static_cast<std::size_t>(r)] = inverse;
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        y[c] = round_to<T>(static_cast<A>(x[c]) * inverse * static_cast<A>(weight[c]));
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const RmsNormBackward<T>& norm) {
  using A = Accumulator<T>;
  const std::int64_t rows = norm.x.rows, cols = norm.x.cols;
  require_fitting(norm);
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    const T* weight = norm.weight.data();
    for (std::int64_t r = first; r < last; ++r) {
      const T* x = norm.x.row(r);
      const T* dy = norm.dy.row(r);
      T* dx = norm.dx.row(r);
      const A inverse = norm.inverse_rms[static_cast<std::size_t>(r)];
      A dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t c = 0; c < cols; ++c) {
        dot += static_cast<A>(dy[c]) * static_cast<A>(weight[c]) * static_cast<A>(x[c]);
      }
      // dx = inverse · (dy ⊙ w − x · inverse² · mean(dy ⊙ w ⊙ x))
      const A along_x = dot * inverse * inverse / static_cast<A>(cols);
      if (norm.d_sum.data) {
        const T* d_sum = norm.d_sum.row(r);
#pragma omp simd
        for (std::int64_t c = 0; c < cols; ++c) {
          const A direct = static_cast<A>(dy[c]) * static_cast<A>(weight[c]);
          dx[c] = round_to<T>(static_cast<A>(d_sum[c]) + inverse * (direct - static_cast<A>(x[c]) * along_x));
        }
        continue;
      }
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        const A direct = static_cast<A>(dy[c]) * static_cast<A>(weight[c]);
        dx[c] = round_to<T>(inverse * (direct - static_cast<A>(x[c]) * along_x));
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const RmsNormWeightGrad<T>& norm) {
  using A = Accumulator<T>;
  const std::int64_t cols = norm.x.cols;
  require_fitting(norm);
  add_column_sums(stream, norm.x.rows, norm.d_weight, [&](std::int64_t r, A* partial) {
    const T* x = norm.x.row(r);
    const T* dy = norm.dy.row(r);
    const A inverse = norm.inverse_rms[static_cast<std::size_t>(r)];
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) {
      partial[c] += static_cast<A>(dy[c]) * (static_cast<A>(x[c]) * inverse);
    }
  });
}

LYCEUM_RMS_NORM_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

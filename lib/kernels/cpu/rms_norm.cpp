#include "kernels/rms_norm.h"

#include <cmath>

#include "core/allocator.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/rms_norm_checks.h"

namespace lyceum {

namespace {

/// Rows that one partial sum of the weight gradient covers, whatever the number of threads.
constexpr std::int64_t chunk_rows = 256;

template <class A, class T>
A mean_square(const T* x, std::int64_t cols) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < cols; ++c) sum += static_cast<A>(x[c]) * static_cast<A>(x[c]);
  return sum / static_cast<A>(cols);
}

/// partial[c] = Σ dy · x · inverse_rms over the rows [first, last).
template <class T>
void sum_chunk(const RmsNormWeightGrad<T>& norm, std::int64_t first, std::int64_t last, Accumulator<T>* partial) {
  using A = Accumulator<T>;
  std::fill_n(partial, norm.x.cols, A{0});
  for (std::int64_t r = first; r < last; ++r) {
    const T* x = norm.x.row(r);
    const T* dy = norm.dy.row(r);
    const A inverse = norm.inverse_rms[static_cast<std::size_t>(r)];
#pragma omp simd
    for (std::int64_t c = 0; c < norm.x.cols; ++c) {
      partial[c] += static_cast<A>(dy[c]) * (static_cast<A>(x[c]) * inverse);
    }
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const RmsNormForward<T>& norm) {
  using A = Accumulator<T>;
  const std::int64_t rows = norm.x.rows, cols = norm.x.cols;
  require_fitting(norm);
  parallel_for(stream, rows, rows_a_thread(cols), [&](std::int64_t first, std::int64_t last) {
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
  parallel_for(stream, rows, rows_a_thread(cols), [&](std::int64_t first, std::int64_t last) {
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
  const std::int64_t rows = norm.x.rows, cols = norm.x.cols;
  require_fitting(norm);
  const std::int64_t chunks = (rows + chunk_rows - 1) / chunk_rows;
  const auto memory =
      stream.memory().allocate(static_cast<std::size_t>(chunks * cols) * sizeof(A), MemoryKind::buffers);
  A* partial = reinterpret_cast<A*>(memory.get());
  parallel_for(stream, chunks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      sum_chunk(norm, chunk * chunk_rows, std::min(rows, (chunk + 1) * chunk_rows), partial + chunk * cols);
    }
  });
  A* d_weight = norm.d_weight.data();
  parallel_for(stream, cols, rows_a_thread(chunks), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const A* sums = partial + chunk * cols;
#pragma omp simd
      for (std::int64_t c = first; c < last; ++c) d_weight[c] += sums[c];
    }
  });
}

template void run(const CpuStream&, const RmsNormForward<float>&);
template void run(const CpuStream&, const RmsNormForward<bfloat16>&);
template void run(const CpuStream&, const RmsNormForward<double>&);
template void run(const CpuStream&, const RmsNormBackward<float>&);
template void run(const CpuStream&, const RmsNormBackward<bfloat16>&);
template void run(const CpuStream&, const RmsNormBackward<double>&);
template void run(const CpuStream&, const RmsNormWeightGrad<float>&);
template void run(const CpuStream&, const RmsNormWeightGrad<bfloat16>&);
template void run(const CpuStream&, const RmsNormWeightGrad<double>&);

}  // namespace lyceum

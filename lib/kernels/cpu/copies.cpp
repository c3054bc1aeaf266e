#include "kernels/copies.h"

#include "kernels/checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const CopyRows<T>& copy) {
  using A = Accumulator<T>;
  const std::int64_t tokens = copy.x.rows, cols = copy.x.cols, k = copy.index.cols;
  require_extents("CopyRows", "index", copy.index, tokens, k);
  require_extents("CopyRows", "gate", copy.gate, tokens, k);
  require_extents("CopyRows", "y", copy.y, tokens, cols);
  parallel_for(stream, tokens, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      A gate = 0;
      for (std::int64_t j = 0; j < k; ++j) gate += copy.index.row(t)[j] >= copy.first ? copy.gate.row(t)[j] : A{0};
      const T* x = copy.x.row(t);
      T* y = copy.y.row(t);
      for (std::int64_t c = 0; c < cols; ++c) y[c] = round_to<T>(gate * static_cast<A>(x[c]));
    }
  });
}

template <class T>
void run(const CpuStream& stream, const CopyRowsBackward<T>& copy) {
  using A = Accumulator<T>;
  const std::int64_t tokens = copy.x.rows, cols = copy.x.cols, k = copy.index.cols;
  require_extents("CopyRowsBackward", "dy", copy.dy, tokens, cols);
  require_extents("CopyRowsBackward", "index", copy.index, tokens, k);
  require_extents("CopyRowsBackward", "d_gate", copy.d_gate, tokens, k);
  parallel_for(stream, tokens, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      const T *x = copy.x.row(t), *dy = copy.dy.row(t);
      A dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t c = 0; c < cols; ++c) dot += static_cast<A>(dy[c]) * static_cast<A>(x[c]);
      for (std::int64_t j = 0; j < k; ++j) copy.d_gate.row(t)[j] = copy.index.row(t)[j] >= copy.first ? dot : A{0};
    }
  });
}

LYCEUM_COPIES_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

#include "kernels/bias.h"

#include "kernels/checks.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const AddBias<T>& add) {
  using A = Accumulator<T>;
  const std::int64_t cols = add.y.cols;
  require_length("AddBias", "bias", add.bias, cols);
  for_each_row(stream, add.y.rows, cols, [&](std::int64_t r) {
    const T* bias = add.bias.data();
    T* y = add.y.row(r);
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) y[c] = round_to<T>(static_cast<A>(y[c]) + static_cast<A>(bias[c]));
  });
}

template <class T>
void run(const CpuStream& stream, const BiasGrad<T>& sum) {
  using A = Accumulator<T>;
  const std::int64_t cols = sum.dy.cols;
  require_length("BiasGrad", "d_bias", sum.d_bias, cols);
  add_column_sums(stream, sum.dy.rows, sum.d_bias, [&](std::int64_t r, A* partial) {
    const T* dy = sum.dy.row(r);
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) partial[c] += static_cast<A>(dy[c]);
  });
}

LYCEUM_BIAS_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

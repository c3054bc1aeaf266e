#include "kernels/row_gate.h"

#include "kernels/cpu/parallel_for.h"
#include "kernels/logistic.h"
#include "kernels/row_gate_checks.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const RowGateForward<T>& gate) {
  using A = Accumulator<T>;
  const std::int64_t cols = gate.x.cols;
  require_fitting(gate);
  for_each_row(stream, gate.x.rows, cols, [&](std::int64_t r) {
    const A g = logistic(gate.logits[static_cast<std::size_t>(r)]);
    const T* x = gate.x.row(r);
    T* y = gate.y.row(r);
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) y[c] = round_to<T>(g * static_cast<A>(x[c]));
  });
}

template <class T>
void run(const CpuStream& stream, const RowGateBackward<T>& gate) {
  using A = Accumulator<T>;
  const std::int64_t cols = gate.x.cols;
  require_fitting(gate);
  for_each_row(stream, gate.x.rows, cols, [&](std::int64_t r) {
    const auto row = static_cast<std::size_t>(r);
    const A g = logistic(gate.logits[row]);
    const T *x = gate.x.row(r), *dy = gate.dy.row(r);
    T* dx = gate.dx.row(r);
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < cols; ++c) {
      dot += static_cast<A>(dy[c]) * static_cast<A>(x[c]);
      dx[c] = round_to<T>(g * static_cast<A>(dy[c]));
    }
    gate.d_logits[row] = dot * g * (A{1} - g);
  });
}

LYCEUM_ROW_GATE_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

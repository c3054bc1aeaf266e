#include "kernels/cross_entropy.h"

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/row_sums.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const CrossEntropyForward<T>& loss) {
  using A = Accumulator<T>;
  const std::int64_t rows = loss.logits.rows, cols = loss.logits.cols;
  require_length("CrossEntropyForward", "targets", loss.targets, rows);
  require_length("CrossEntropyForward", "loss", loss.loss, rows);
  require_length("CrossEntropyForward", "log_sum_exp", loss.log_sum_exp, rows);
  require_indices("CrossEntropyForward", "targets", loss.targets, 0, cols);
  parallel_for(stream, rows, rows_a_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const auto t = static_cast<std::size_t>(r);
      const T* logits = loss.logits.row(r);
      loss.log_sum_exp[t] = log_sum_exp(logits, cols);
      loss.loss[t] = loss.log_sum_exp[t] - static_cast<A>(logits[loss.targets[t]]);
    }
  });
}

template <class T>
void run(const CpuStream& stream, const CrossEntropyBackward<T>& loss) {
  using A = Accumulator<T>;
  const std::int64_t rows = loss.logits.rows, cols = loss.logits.cols;
  require_extents("CrossEntropyBackward", "d_logits", loss.d_logits, rows, cols);
  require_length("CrossEntropyBackward", "targets", loss.targets, rows);
  require_length("CrossEntropyBackward", "log_sum_exp", loss.log_sum_exp, rows);
  require_indices("CrossEntropyBackward", "targets", loss.targets, 0, cols);
  const A scale = static_cast<A>(loss.scale);
  parallel_for(stream, rows, rows_a_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const auto t = static_cast<std::size_t>(r);
      const T* logits = loss.logits.row(r);
      T* d_logits = loss.d_logits.row(r);
      const A log_sum = loss.log_sum_exp[t];
      const A at_target = fast_exp(static_cast<A>(logits[loss.targets[t]]) - log_sum) - A{1};
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        d_logits[c] = round_to<T>(scale * fast_exp(static_cast<A>(logits[c]) - log_sum));
      }
      d_logits[loss.targets[t]] = round_to<T>(scale * at_target);
    }
  });
}

template void run(const CpuStream&, const CrossEntropyForward<float>&);
template void run(const CpuStream&, const CrossEntropyForward<bfloat16>&);
template void run(const CpuStream&, const CrossEntropyForward<double>&);
template void run(const CpuStream&, const CrossEntropyBackward<float>&);
template void run(const CpuStream&, const CrossEntropyBackward<bfloat16>&);
template void run(const CpuStream&, const CrossEntropyBackward<double>&);

}  // namespace lyceum

#include "kernels/pair_divergence.h"

#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/pair_divergence_checks.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const PairDivergence<T>& divergence) {
  using A = Accumulator<T>;
  require_fitting(divergence);
  const std::int64_t pairs = divergence.logits.rows / 2, cols = divergence.logits.cols, seq_len = divergence.seq_len;
  parallel_for(stream, pairs, rows_per_thread(2 * cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t pair = first; pair < last; ++pair) {
      const std::int64_t row = first_row_of(pair, seq_len);
      const T *a = divergence.logits.row(row), *b = divergence.logits.row(row + seq_len);
      const A a_sum = divergence.log_sum_exp[static_cast<std::size_t>(row)];
      const A b_sum = divergence.log_sum_exp[static_cast<std::size_t>(row + seq_len)];
      A symmetric = 0, forward = 0;
      const std::int64_t words = divergence.targets[static_cast<std::size_t>(row)] == no_target ? 0 : cols;
#pragma omp simd reduction(+ : symmetric, forward)
      for (std::int64_t c = 0; c < words; ++c) {
        const A log_p = static_cast<A>(a[c]) - a_sum, log_q = static_cast<A>(b[c]) - b_sum;
        const A p = fast_exp(log_p), q = fast_exp(log_q), d = log_p - log_q;
        symmetric += (p - q) * d;
        forward += p * d;
      }
      divergence.sums.row(0)[pair] = A(0.5) * symmetric;
      divergence.sums.row(1)[pair] = forward;
    }
  });
}

template <class T>
void run(const CpuStream& stream, const PairedCrossEntropyBackward<T>& loss) {
  using A = Accumulator<T>;
  require_fitting(loss);
  require_indices("PairedCrossEntropyBackward", "targets", loss.targets, no_target, loss.vocab);
  const std::int64_t pairs = loss.logits.rows / 2, cols = loss.logits.cols, seq_len = loss.seq_len;
  const A scale = loss.scale[0], z_scale = loss.z_scale.empty() ? A{0} : loss.z_scale[0], of_pairs = loss.pair_scale[0];
  parallel_for(stream, pairs, rows_per_thread(2 * cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t pair = first; pair < last; ++pair) {
      const std::int64_t row = first_row_of(pair, seq_len);
      const T *a = loss.logits.row(row), *b = loss.logits.row(row + seq_len);
      T *d_a = loss.d_logits.row(row), *d_b = loss.d_logits.row(row + seq_len);
      if (loss.targets[static_cast<std::size_t>(row)] == no_target) {
        std::fill_n(d_a, cols, T{});
        std::fill_n(d_b, cols, T{});
        continue;
      }
      const PairSlopes<A> slopes = slopes_of(loss, pair, row, scale, z_scale, of_pairs);
      const std::int64_t target = loss.targets[static_cast<std::size_t>(row)] - loss.first;
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        const A a_c = static_cast<A>(a[c]), b_c = static_cast<A>(b[c]);
        const A p = fast_exp(a_c - slopes.first_log_sum), q = fast_exp(b_c - slopes.second_log_sum);
        const PairGradients<A> gradients = slopes.gradients(p, q, a_c, b_c, c == target);
        d_a[c] = round_to<T>(gradients.first);
        d_b[c] = round_to<T>(gradients.second);
      }
    }
  });
}

LYCEUM_PAIR_DIVERGENCE_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

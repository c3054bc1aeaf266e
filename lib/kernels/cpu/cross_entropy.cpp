#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/cross_entropy_checks.h"

namespace lyceum {

namespace {

/// Returns the term of a token in the z-loss.
template <class A>
A square_or_zero(A log_sum, std::int32_t target) {
  return target == no_target ? A{0} : log_sum * log_sum;
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const CrossEntropyForward<T>& loss) {
  using A = Accumulator<T>;
  const std::int64_t rows = loss.logits.rows, cols = loss.logits.cols;
  require_fitting(loss);
  require_indices("CrossEntropyForward", "targets", loss.targets, no_target, cols);
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const auto t = static_cast<std::size_t>(r);
      const T* logits = loss.logits.row(r);
      loss.log_sum_exp[t] = log_sum_exp(logits, cols);
      const std::int32_t target = loss.targets[t];
      loss.loss[t] = target == no_target ? A{0} : loss.log_sum_exp[t] - static_cast<A>(logits[target]);
      if (!loss.squares.empty()) loss.squares[t] = square_or_zero(loss.log_sum_exp[t], target);
      if (!loss.largest.empty()) loss.largest[t] = row_maximum(logits, cols);
    }
  });
}

template <class T>
void run(const CpuStream& stream, const CrossEntropyPart<T>& part) {
  using A = Accumulator<T>;
  const std::int64_t rows = part.logits.rows, cols = part.logits.cols;
  require_fitting(part);
  require_indices("CrossEntropyPart", "targets", part.targets, no_target, part.vocab);
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const T* logits = part.logits.row(r);
      const std::int64_t target = part.targets[static_cast<std::size_t>(r)] - part.first;
      A* statistics = part.statistics.row(r);
      const A largest = row_maximum(logits, cols);
      statistics[0] = largest;
      statistics[1] = exp_sum(logits, cols, std::isinf(largest) && largest < 0 ? A{0} : largest);
      statistics[2] = target >= 0 && target < cols ? static_cast<A>(logits[target]) : A{0};
    }
  });
}

template <class A>
void run(const CpuStream& stream, const CrossEntropyJoin<A>& join) {
  const std::int64_t rows = std::ssize(join.loss);
  require_fitting(join);
  const std::int64_t parts = rows ? join.statistics.rows / rows : 0;
  parallel_for(stream, rows, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      A largest = -std::numeric_limits<A>::infinity(), sum = 0, target = 0;
      for (std::int64_t p = 0; p < parts; ++p) largest = std::max(largest, join.statistics.row(p * rows + r)[0]);
      for (std::int64_t p = 0; p < parts; ++p) {
        const A* statistics = join.statistics.row(p * rows + r);
        sum += statistics[1] * std::exp(statistics[0] - largest);
        target += statistics[2];
      }
      const auto t = static_cast<std::size_t>(r);
      join.log_sum_exp[t] = largest + std::log(sum);
      join.loss[t] = join.targets[t] == no_target ? A{0} : join.log_sum_exp[t] - target;
      if (!join.squares.empty()) join.squares[t] = square_or_zero(join.log_sum_exp[t], join.targets[t]);
      if (!join.largest.empty()) join.largest[t] = largest;
    }
  });
}

template <class T>
void run(const CpuStream& stream, const CrossEntropyBackward<T>& loss) {
  using A = Accumulator<T>;
  const std::int64_t rows = loss.logits.rows, cols = loss.logits.cols;
  require_fitting(loss);
  const A scale = loss.scale[0], z_scale = loss.z_scale.empty() ? A{0} : loss.z_scale[0];
  require_indices("CrossEntropyBackward", "targets", loss.targets, no_target, words_of(loss));
  parallel_for(stream, rows, rows_per_thread(cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const auto t = static_cast<std::size_t>(r);
      const T* logits = loss.logits.row(r);
      T* d_logits = loss.d_logits.row(r);
      if (loss.targets[t] == no_target) {
        std::fill_n(d_logits, cols, T{});
        continue;
      }
      const A log_sum = loss.log_sum_exp[t];
      const std::int64_t target = loss.targets[t] - loss.first;
      const bool here = target >= 0 && target < cols;
      const A of_square = z_scale * (A{2} * log_sum), slope = scale + of_square;
      const A p = here ? fast_exp(static_cast<A>(logits[target]) - log_sum) : A{0};
      const A at_target = scale * (p - A{1}) + of_square * p;
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        d_logits[c] = round_to<T>(slope * fast_exp(static_cast<A>(logits[c]) - log_sum));
      }
      if (here) d_logits[target] = round_to<T>(at_target);
    }
  });
}

LYCEUM_CROSS_ENTROPY_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

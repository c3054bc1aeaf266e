#include "kernels/attention_sinks.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/parallel_for.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const ApplySinks<T>& apply) {
  using A = Accumulator<T>;
  const std::int64_t dim = require_fitting(apply), heads = std::ssize(apply.sinks);
  for_each_row(stream, apply.out.rows, apply.out.cols, [&](std::int64_t t) {
    A* log_sums = apply.log_sum_exp.row(t);
    for (std::int64_t head = 0; head < heads; ++head) {
      const A sink = static_cast<A>(apply.sinks[static_cast<std::size_t>(head)]), keys = log_sums[head];
      const A factor = A{1} / (A{1} + std::exp(sink - keys));
      log_sums[head] = std::max(keys, sink) + std::log1p(std::exp(-std::abs(keys - sink)));
      T* out = apply.out.row(t) + head * dim;
#pragma omp simd
      for (std::int64_t d = 0; d < dim; ++d) out[d] = round_to<T>(static_cast<A>(out[d]) * factor);
    }
  });
}

template <class T>
void run(const CpuStream& stream, const SinkGradients<T>& sinks) {
  using A = Accumulator<T>;
  const std::int64_t dim = require_fitting(sinks), heads = std::ssize(sinks.sinks);
  for_each_row(stream, sinks.out.rows, sinks.out.cols, [&](std::int64_t t) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const T *out = sinks.out.row(t) + head * dim, *d_out = sinks.d_out.row(t) + head * dim;
      A sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t d = 0; d < dim; ++d) sum += static_cast<A>(out[d]) * static_cast<A>(d_out[d]);
      const A sink = static_cast<A>(sinks.sinks[static_cast<std::size_t>(head)]);
      sinks.d_sinks.row(t)[head] = -std::exp(sink - sinks.log_sum_exp.row(t)[head]) * sum;
    }
  });
}

LYCEUM_ATTENTION_SINK_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

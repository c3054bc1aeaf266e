#include "kernels/adamw.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

namespace {

template <class T>
void step_range(const AdamWStep<T>& step, std::int64_t first, std::int64_t last) {
  using A = Accumulator<T>;
  A* master = step.master.data();
  A* exp_avg = step.exp_avg.data();
  A* exp_avg_sq = step.exp_avg_sq.data();
  const A* gradient = step.gradient.data();
  T* weight = step.weight.data();
  // Constants in double, rounded once: 1 − β₂ has no bits to lose.
  const A scale = static_cast<A>(step.clip.empty() ? step.gradient_scale : step.gradient_scale * step.clip[0]);
  const A eps = static_cast<A>(step.eps);
  const A beta1 = static_cast<A>(step.beta1), rest1 = static_cast<A>(1 - step.beta1);
  const A beta2 = static_cast<A>(step.beta2), rest2 = static_cast<A>(1 - step.beta2);
  const A rate = static_cast<A>(step.lr / step.bias1), inverse_bias2 = static_cast<A>(1 / step.bias2);
  const A decay = static_cast<A>(step.lr * step.weight_decay);
#pragma omp simd
  for (std::int64_t i = first; i < last; ++i) {
    const A g = gradient[i] * scale;
    const A m = beta1 * exp_avg[i] + rest1 * g;
    const A v = beta2 * exp_avg_sq[i] + rest2 * g * g;
    const A w = master[i];
    const A updated = w - (rate * m / (std::sqrt(v * inverse_bias2) + eps) + decay * w);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = updated;
    weight[i] = round_to<T>(updated);
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const AdamWStep<T>& step) {
  const auto count = static_cast<std::int64_t>(step.weight.size());
  require_length("AdamWStep", "master", step.master, count);
  require_length("AdamWStep", "exp_avg", step.exp_avg, count);
  require_length("AdamWStep", "exp_avg_sq", step.exp_avg_sq, count);
  require_length("AdamWStep", "gradient", step.gradient, count);
  parallel_for(stream, count, elements_a_thread,
               [&](std::int64_t first, std::int64_t last) { step_range(step, first, last); });
}

template <class A>
void run(const CpuStream& stream, const SumOfSquares<A>& norm) {
  const auto count = static_cast<std::int64_t>(norm.x.size());
  require(norm.block > 0, "SumOfSquares: blocks of {} elements", norm.block);
  const std::int64_t blocks = (count + norm.block - 1) / norm.block;
  require_length("SumOfSquares", "sums", norm.sums, blocks);
  parallel_for(stream, blocks, std::max<std::int64_t>(1, elements_a_thread / norm.block),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t at = begin; at < end; ++at) {
                   const A* x = norm.x.data() + at * norm.block;
                   const std::int64_t length = std::min(norm.block, count - at * norm.block);
                   double sum = 0;
#pragma omp simd reduction(+ : sum)
                   for (std::int64_t i = 0; i < length; ++i)
                     sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
                   norm.sums[static_cast<std::size_t>(at)] = sum;
                 }
               });
}

template void run(const CpuStream&, const AdamWStep<float>&);
template void run(const CpuStream&, const AdamWStep<bfloat16>&);
template void run(const CpuStream&, const AdamWStep<double>&);
template void run(const CpuStream&, const SumOfSquares<float>&);
template void run(const CpuStream&, const SumOfSquares<double>&);

}  // namespace lyceum

#include "kernels/weight_average.h"

#include "kernels/checks.h"
#include "kernels/cpu/parallel_for.h"

namespace lyceum {

template <class A>
void run(const CpuStream& stream, const AverageWeights<A>& step) {
  const auto count = static_cast<std::int64_t>(step.average.size());
  require_length("AverageWeights", "weights", step.weights, count);
  require_length("AverageWeights", "verdict", step.verdict, 1);
  if (step.verdict[0].skip != 0) return;
  const A rest = static_cast<A>(1 - step.decay);
  parallel_for(stream, count, elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    const A* weights = step.weights.data();
    A* average = step.average.data();
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) average[i] += rest * (weights[i] - average[i]);
  });
}

LYCEUM_WEIGHT_AVERAGE_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

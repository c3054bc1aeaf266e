#include "kernels/checks.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/weight_average.h"

namespace lyceum {

namespace {

constexpr int average_threads = 256;

/// A grid-stride loop, one thread per element.
template <class A>
__global__ void __launch_bounds__(average_threads) average_weights(AverageWeights<A> step) {
  if (step.verdict[0].skip != 0) return;
  const auto count = static_cast<std::int64_t>(step.average.size());
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * average_threads;
  const A rest = static_cast<A>(1 - step.decay);
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * average_threads + threadIdx.x; i < count; i += stride) {
    A& average = step.average[static_cast<std::size_t>(i)];
    average += rest * (step.weights[static_cast<std::size_t>(i)] - average);
  }
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const AverageWeights<A>& step) {
  const auto count = static_cast<std::int64_t>(step.average.size());
  require_length("AverageWeights", "weights", step.weights, count);
  require_length("AverageWeights", "verdict", step.verdict, 1);
  start(stream, "AverageWeights", average_weights<A>, blocks_for(count, average_threads), average_threads, step);
}

LYCEUM_WEIGHT_AVERAGE_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

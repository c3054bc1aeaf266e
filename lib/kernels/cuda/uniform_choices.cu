#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/uniform_choices.h"
#include "kernels/uniform_numbers.h"

namespace lyceum {

namespace {

constexpr int uniform_threads = 256;

template <class A>
__global__ void __launch_bounds__(uniform_threads) choose_uniformly(UniformChoices<A> choices, std::uint64_t key) {
  const std::int64_t tokens = choices.index.rows, k = choices.index.cols;
  const auto step = choices.draw.step.empty() ? 0u : static_cast<std::uint32_t>(choices.draw.step[0]);
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * uniform_threads + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * uniform_threads;
  for (std::int64_t r = own; r < tokens; r += stride) {
    std::int32_t* const chosen = choices.index.row(r);
    draw_experts(key, choices.draw.layer, step, token_of(choices.draw, r), choices.experts, chosen, k);
    for (std::int64_t i = 0; i < k; ++i) {
      choices.gates.row(r)[i] = static_cast<A>(choices.gate);
      // Adding whole numbers atomically gives the same sum in any order.
      if (choices.counts.rows > 0) {
        atomicAdd(reinterpret_cast<unsigned long long*>(&choices.counts.row(i)[chosen[i]]), 1ull);
      }
    }
  }
  const auto all = static_cast<double>(tokens), experts = static_cast<double>(choices.experts);
  for (std::int64_t e = own; e < static_cast<std::int64_t>(choices.probability.size()); e += stride) {
    choices.probability[e] += all / experts;
  }
  if (own == 0 && !choices.entropy.empty()) choices.entropy[0] += all * std::log(experts);
}

}  // namespace

template <class A>
void run(const CudaStream& stream, const UniformChoices<A>& choices) {
  require_fitting(choices);
  start(stream, "UniformChoices", choose_uniformly<A>, blocks_for(choices.index.rows, uniform_threads), uniform_threads,
        choices, uniform_key(choices.draw.seed));
}

LYCEUM_UNIFORM_CHOICES_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

#include "kernels/cuda/weight_update.cuh"
#include "kernels/muon.h"

namespace lyceum {

namespace {

/// Numbers that are the same for all elements of a launch.
template <class A>
struct Factors {
  A scale, mu, rest;
};

/// Updates `count` consecutive elements of one span, from element i on, whose random numbers begin at `numbers`.
/// Returns the change of the sum of the states' words.
template <int count, class T, class S>
__device__ std::uint32_t update_pack(const UpdatedTensor<T, AdamWOrMuon::states, S>& tensor,
                                     const Factors<Accumulator<T>>& factors, std::int64_t i,
                                     const std::uint32_t* numbers) {
  using A = Accumulator<T>;
  auto state = load<count>(tensor.state[0] + i);
  auto gradient = load<count>(tensor.gradient + i);
  std::uint32_t change = 0;
  for (int e = 0; e < count; ++e) {
    const S before = state[e];
    const A g = gradient[e] * factors.scale, after = factors.mu * static_cast<A>(widen(before)) + factors.rest * g;
    state[e] = weight_update::round_state<S>(after, numbers[e]);
    gradient[e] = factors.rest * g + factors.mu * after;
    change += word_of(state[e]) - word_of(before);
  }
  store(tensor.state[0] + i, state);
  store(tensor.gradient + i, gradient);
  return change;
}

/// One thread block per contiguous range of blocks of the tensors; each thread processes `width` consecutive elements
/// of a block.
template <class T, class S>
__global__ void __launch_bounds__(weight_update::block_threads) update_momentum(UpdateMomentum<T, S> update) {
  using A = Accumulator<T>;
  constexpr int width = weight_update::width;
  const StepVerdict verdict = update.verdict[0];
  if (verdict.skip != 0) return;
  const Factors<A> factors{.scale = static_cast<A>(verdict.gradient_scale),
                           .mu = static_cast<A>(update.momentum),
                           .rest = static_cast<A>(1 - update.momentum)};
  const std::int64_t first = update.blocks * blockIdx.x / gridDim.x,
                     last = update.blocks * (blockIdx.x + 1) / gridDim.x;
  BlockWalk<UpdatedTensor<T, AdamWOrMuon::states, S>> walk(update.tensors, first);
  for (std::int64_t at = first; at < last; ++at, walk.next()) {
    const UpdatedTensor<T, AdamWOrMuon::states, S>& tensor = walk.tensor();
    const std::int64_t begin = walk.block() * flat_block + threadIdx.x * width;
    const UpdateSpan* span = update.spans.data() + tensor.first_span;
    std::uint32_t change = 0;
    std::array<std::uint32_t, width> numbers{};
    while (begin < tensor.count && span->end <= begin) ++span;
    if constexpr (std::is_same_v<S, bfloat16>) {
      if (begin < tensor.count) numbers = weight_update::rounding_numbers<width>(update.rounding, tensor, begin);
    }
    if (begin + width <= tensor.count && begin + width <= span->end && weight_update::is_packed(tensor, *span, 1)) {
      if (span->rule == muon_span) change = update_pack<width>(tensor, factors, begin, numbers.data());
    } else {
      for (int e = 0; e < width && begin + e < tensor.count; ++e) {
        while (span->end <= begin + e) ++span;
        if (span->rule == muon_span) change += update_pack<1>(tensor, factors, begin + e, numbers.data() + e);
      }
    }
    if (update.digests.kept.empty()) continue;
    change = join_block<weight_update::block_threads>(change, Sum{});
    if (threadIdx.x == 0) update.digests.kept[at] += state_factor(0) * change;
  }
}

}  // namespace

template <class T, class S>
void run(const CudaStream& stream, const UpdateMomentum<T, S>& update) {
  require_length("UpdateMomentum", "verdict", update.verdict, 1);
  if constexpr (std::is_same_v<S, bfloat16>) require_length("UpdateMomentum", "update", update.rounding.update, 1);
  if (!update.digests.kept.empty()) {
    require_length("UpdateMomentum", "kept digests", update.digests.kept, update.blocks);
  }
  start(stream, "UpdateMomentum", update_momentum<T, S>, weight_update::grid_of(stream, update.blocks),
        weight_update::block_threads, update);
}

LYCEUM_MUON_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

#include "kernels/cuda/weight_update.cuh"
#include "kernels/muon.h"

namespace lyceum {

namespace {

/// One thread block per contiguous range of blocks of the tensors; each thread processes `width` consecutive elements,
/// see update_tensors().
template <class T, class S>
__global__ void __launch_bounds__(weight_update::threads) update_momentum(UpdateMomentum<T, S> update) {
  using A = Accumulator<T>;
  const StepVerdict verdict = update.verdict[0];
  if (verdict.skip != 0) return;
  const auto scale = static_cast<A>(verdict.gradient_scale);
  const auto mu = static_cast<A>(update.momentum), rest = static_cast<A>(1 - update.momentum);
  const std::int64_t first = update.blocks * blockIdx.x / gridDim.x,
                     last = update.blocks * (blockIdx.x + 1) / gridDim.x;
  BlockWalk<UpdatedTensor<T, AdamWOrMuon::states, S>> walk(update.tensors, first);
  for (std::int64_t at = first; at < last; ++at, walk.next()) {
    const UpdatedTensor<T, AdamWOrMuon::states, S>& tensor = walk.tensor();
    const std::int64_t begin = walk.block() * flat_block + threadIdx.x * weight_update::width;
    const UpdateSpan* span = update.spans.data() + tensor.first_span;
    std::uint32_t change = 0;
    std::array<std::uint32_t, weight_update::width> numbers{};
    if constexpr (std::is_same_v<S, bfloat16>) {
      if (begin < tensor.count) {
        numbers = weight_update::rounding_numbers<weight_update::width>(update.rounding, tensor, begin);
      }
    }
    for (std::int64_t i = begin; i < begin + weight_update::width && i < tensor.count; ++i) {
      while (span->end <= i) ++span;
      if (span->rule != muon_span) continue;
      const S before = tensor.state[0][i];
      const A g = tensor.gradient[i] * scale, after = mu * static_cast<A>(widen(before)) + rest * g;
      const S stored = weight_update::round_state<S>(after, numbers[static_cast<std::size_t>(i - begin)]);
      tensor.state[0][i] = stored;
      tensor.gradient[i] = rest * g + mu * after;
      change += word_of(stored) - word_of(before);
    }
    if (update.digests.kept.empty()) continue;
    change = join_block<weight_update::threads>(change, Sum{});
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
        weight_update::threads, update);
}

LYCEUM_MUON_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

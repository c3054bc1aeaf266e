#include "kernels/cuda/weight_update.cuh"
#include "kernels/muon.h"

namespace lyceum {

namespace {

/// One thread block per contiguous range of blocks of the tensors; each thread processes `width` consecutive elements,
/// see update_tensors().
template <class T>
__global__ void __launch_bounds__(weight_update::threads) update_momentum(UpdateMomentum<T> update) {
  using A = Accumulator<T>;
  const StepVerdict verdict = update.verdict[0];
  if (verdict.skip != 0) return;
  const auto scale = static_cast<A>(verdict.gradient_scale);
  const auto mu = static_cast<A>(update.momentum), rest = static_cast<A>(1 - update.momentum);
  const std::int64_t first = update.blocks * blockIdx.x / gridDim.x,
                     last = update.blocks * (blockIdx.x + 1) / gridDim.x;
  BlockWalk<UpdatedTensor<T, AdamWOrMuon::states>> walk(update.tensors, first);
  for (std::int64_t at = first; at < last; ++at, walk.next()) {
    const UpdatedTensor<T, AdamWOrMuon::states>& tensor = walk.tensor();
    const std::int64_t begin = walk.block() * flat_block + threadIdx.x * weight_update::width;
    const UpdateSpan* span = update.spans.data() + tensor.first_span;
    std::uint32_t change = 0;
    for (std::int64_t i = begin; i < begin + weight_update::width && i < tensor.count; ++i) {
      while (span->end <= i) ++span;
      if (span->rule != muon_span) continue;
      const A g = tensor.gradient[i] * scale, before = tensor.state[0][i], after = mu * before + rest * g;
      tensor.state[0][i] = after;
      tensor.gradient[i] = rest * g + mu * after;
      change += word_of(after) - word_of(before);
    }
    if (update.digests.kept.empty()) continue;
    change = join_block<weight_update::threads>(change, Sum{});
    if (threadIdx.x == 0) update.digests.kept[at] += state_factor(0) * change;
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const UpdateMomentum<T>& update) {
  require_length("UpdateMomentum", "verdict", update.verdict, 1);
  if (!update.digests.kept.empty()) {
    require_length("UpdateMomentum", "kept digests", update.digests.kept, update.blocks);
  }
  start(stream, "UpdateMomentum", update_momentum<T>, weight_update::grid_of(stream, update.blocks),
        weight_update::threads, update);
}

LYCEUM_MUON_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

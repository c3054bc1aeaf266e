#include "kernels/cuda/weight_update.cuh"

namespace lyceum {

namespace {

template <class T, std::size_t states, class S>
__global__ void __launch_bounds__(weight_update::block_threads) check_tensors(CheckDigests<T, states, S> check) {
  const std::int64_t first = check.blocks * blockIdx.x / gridDim.x, last = check.blocks * (blockIdx.x + 1) / gridDim.x;
  BlockWalk<UpdatedTensor<T, states, S>> walk(check.tensors, first);
  for (std::int64_t at = first; at < last; ++at, walk.next()) {
    const UpdatedTensor<T, states, S>& tensor = walk.tensor();
    const std::int64_t i = walk.block() * flat_block + threadIdx.x * weight_update::width;
    const UpdateSpan* span = check.spans.data() + tensor.first_span;
    std::uint32_t own = 0;
    for (int e = 0; e < weight_update::width && i + e < tensor.count; ++e) {
      while (span->end <= i + e) ++span;
      own += word_of(tensor.master[i + e]);
      for (int s = 0; s < span->states; ++s) own += state_factor(s) * word_of(state_of(tensor, *span, s)[i + e]);
      if (weight_update::weight_is_apart(tensor)) own += weight_factor * word_of(tensor.weight[i + e]);
    }
    const std::uint32_t found = join_block<weight_update::block_threads>(own, Sum{});
    if (threadIdx.x != 0) continue;
    if (check.renew) {
      check.digests.kept[at] = found;
    } else {
      weight_update::compare(check.digests, at, found);
    }
  }
}

__global__ void judge_step(JudgeStep judge) {
  const double norm = judge.norm[0];
  const bool sound = std::isfinite(norm) && std::isfinite(judge.loss[0]) && judge.loss_weight[0] > 0;
  const bool outlier = judge.loss[0] > judge.limits[0] || norm > judge.limits[1];
  judge.verdict[0] = {.gradient_scale = judge.clip > 0 && norm > judge.clip ? judge.clip / norm : 1,
                      .skip = !sound    ? StepVerdict::unsound
                              : outlier ? StepVerdict::outlier
                                        : 0.0};
}

}  // namespace

template <class T, std::size_t states, class S>
void run(const CudaStream& stream, const CheckDigests<T, states, S>& check) {
  require_length("CheckDigests", "digests.kept", check.digests.kept, check.blocks);
  start(stream, "CheckDigests", check_tensors<T, states, S>, weight_update::grid_of(stream, check.blocks),
        weight_update::block_threads, check);
}

void run(const CudaStream& stream, const JudgeStep& judge) {
  require_length("JudgeStep", "norm", judge.norm, 1);
  require_length("JudgeStep", "loss", judge.loss, 1);
  require_length("JudgeStep", "loss_weight", judge.loss_weight, 1);
  require_length("JudgeStep", "limits", judge.limits, 2);
  require_length("JudgeStep", "verdict", judge.verdict, 1);
  start(stream, "JudgeStep", judge_step, 1, 1, judge);
}

LYCEUM_WEIGHT_UPDATE_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum

#include "kernels/cpu/weight_update.h"

#include <cmath>

namespace lyceum {

template <class T, std::size_t states, class S>
void run(const CpuStream& stream, const CheckDigests<T, states, S>& check) {
  require_length("CheckDigests", "digests.kept", check.digests.kept, check.blocks);
  parallel_for(stream, check.blocks, elements_per_thread / flat_block, [&](std::int64_t first, std::int64_t last) {
    BlockWalk walk(check.tensors, first);
    for (std::int64_t at = first; at < last; ++at, walk.next()) {
      const UpdatedTensor<T, states, S>& tensor = walk.tensor();
      const std::int64_t begin = walk.block() * flat_block, end = std::min(begin + flat_block, tensor.count);
      std::uint32_t found = 0;
      weight_update::for_each_span(check.spans.data() + tensor.first_span, begin, end,
                                   [&](const UpdateSpan& span, std::int64_t from, std::int64_t to) {
                                     for (std::int64_t i = from; i < to; ++i) found += word_of(tensor.master[i]);
                                     for (std::size_t s = 0; s < static_cast<std::size_t>(span.states); ++s) {
                                       const S* const state = state_of(tensor, span, s);
                                       for (std::int64_t i = from; i < to; ++i)
                                         found += state_factor(s) * word_of(state[i]);
                                     }
                                   });
      found += weight_update::weight_digest(tensor, begin, end - begin);
      if (check.renew) {
        check.digests.kept[static_cast<std::size_t>(at)] = found;
      } else {
        weight_update::compare(check.digests, at, found);
      }
    }
  });
}

void run(const CpuStream&, const JudgeStep& judge) {
  require_length("JudgeStep", "norm", judge.norm, 1);
  require_length("JudgeStep", "loss", judge.loss, 1);
  require_length("JudgeStep", "loss_weight", judge.loss_weight, 1);
  require_length("JudgeStep", "limits", judge.limits, 2);
  require_length("JudgeStep", "verdict", judge.verdict, 1);
  const double norm = judge.norm[0];
  const bool sound = std::isfinite(norm) && std::isfinite(judge.loss[0]) && judge.loss_weight[0] > 0;
  const bool outlier = judge.loss[0] > judge.limits[0] || norm > judge.limits[1];
  judge.verdict[0] = {.gradient_scale = judge.clip > 0 && norm > judge.clip ? judge.clip / norm : 1,
                      .skip = !sound    ? StepVerdict::unsound
                              : outlier ? StepVerdict::outlier
                                        : 0.0};
}

LYCEUM_WEIGHT_UPDATE_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

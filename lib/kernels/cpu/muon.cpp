#include "kernels/muon.h"

#include "kernels/cpu/weight_update.h"

namespace lyceum {

namespace {

/// Updates the momentum of elements [first, last) and replaces their gradients. Returns the change of the sum of the
/// momentum's words.
template <class A>
std::uint32_t update_momentum(A* momentum, A* gradient, A scale, A mu, A rest, std::int64_t first, std::int64_t last) {
  std::uint32_t change = 0;
#pragma omp simd reduction(+ : change)
  for (std::int64_t i = first; i < last; ++i) {
    const A g = gradient[i] * scale, before = momentum[i], after = mu * before + rest * g;
    momentum[i] = after;
    gradient[i] = rest * g + mu * after;
    change += word_of(after) - word_of(before);
  }
  return change;
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const UpdateMomentum<T>& update) {
  using A = Accumulator<T>;
  require_length("UpdateMomentum", "verdict", update.verdict, 1);
  const bool watched = !update.digests.kept.empty();
  if (watched) require_length("UpdateMomentum", "kept digests", update.digests.kept, update.blocks);
  if (update.verdict[0].skip != 0) return;
  const auto scale = static_cast<A>(update.verdict[0].gradient_scale);
  const auto mu = static_cast<A>(update.momentum), rest = static_cast<A>(1 - update.momentum);
  parallel_for(stream, update.blocks, elements_per_thread / flat_block, [&](std::int64_t first, std::int64_t last) {
    BlockWalk walk(update.tensors, first);
    for (std::int64_t at = first; at < last; ++at, walk.next()) {
      const auto& tensor = walk.tensor();
      const std::int64_t begin = walk.block() * flat_block, end = std::min(begin + flat_block, tensor.count);
      std::uint32_t change = 0;
      weight_update::for_each_span(update.spans.data() + tensor.first_span, begin, end,
                                   [&](const UpdateSpan& span, std::int64_t from, std::int64_t to) {
                                     if (span.rule != muon_span) return;
                                     change +=
                                         update_momentum(tensor.state[0], tensor.gradient, scale, mu, rest, from, to);
                                   });
      if (watched) update.digests.kept[static_cast<std::size_t>(at)] += state_factor(0) * change;
    }
  });
}

LYCEUM_MUON_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

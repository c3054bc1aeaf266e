#include "kernels/muon.h"

#include "kernels/cpu/weight_update.h"

namespace lyceum {

namespace {

/// Updates the momentum of elements [first, last) and replaces their gradients. `numbers`: those that round the
/// momentum of these elements if S is bfloat16. Returns the change of the sum of the momentum's words.
template <class A, class S>
std::uint32_t update_momentum(S* momentum, A* gradient, A scale, A mu, A rest, std::int64_t first, std::int64_t last,
                              [[maybe_unused]] const std::uint16_t* numbers) {
  std::uint32_t change = 0;
#pragma omp simd reduction(+ : change)
  for (std::int64_t i = first; i < last; ++i) {
    const A g = gradient[i] * scale, before = weight_update::widen_state<A>(momentum[i]),
            after = mu * before + rest * g;
    change -= word_of(momentum[i]);
    if constexpr (std::is_same_v<S, bfloat16>) {
      const std::uint16_t bits = rounded_bits(static_cast<float>(after), numbers[i - first]);
      momentum[i].bits = bits;
      change += bits;
    } else {
      momentum[i] = after;
      change += word_of(after);
    }
    gradient[i] = rest * g + mu * after;
  }
  return change;
}

}  // namespace

template <class T, class S>
void run(const CpuStream& stream, const UpdateMomentum<T, S>& update) {
  using A = Accumulator<T>;
  require_length("UpdateMomentum", "verdict", update.verdict, 1);
  if constexpr (std::is_same_v<S, bfloat16>) require_length("UpdateMomentum", "update", update.rounding.update, 1);
  const bool watched = !update.digests.kept.empty();
  if (watched) require_length("UpdateMomentum", "kept digests", update.digests.kept, update.blocks);
  if (update.verdict[0].skip != 0) return;
  const auto scale = static_cast<A>(update.verdict[0].gradient_scale);
  const auto mu = static_cast<A>(update.momentum), rest = static_cast<A>(1 - update.momentum);
  parallel_for(stream, update.blocks, elements_per_thread / flat_block, [&](std::int64_t first, std::int64_t last) {
    BlockWalk walk(update.tensors, first);
    [[maybe_unused]] weight_update::RoundingNumbers numbers;
    for (std::int64_t at = first; at < last; ++at, walk.next()) {
      const auto& tensor = walk.tensor();
      const std::int64_t begin = walk.block() * flat_block, end = std::min(begin + flat_block, tensor.count);
      std::uint32_t change = 0;
      weight_update::for_each_span(
          update.spans.data() + tensor.first_span, begin, end,
          [&](const UpdateSpan& span, std::int64_t from, std::int64_t to) {
            if (span.rule != muon_span) return;
            const std::uint16_t* rounding = nullptr;
            if constexpr (std::is_same_v<S, bfloat16>) {
              fill_rounding_numbers(update.rounding, tensor.first_slice, tensor.slices, from, to, numbers.data());
              rounding = numbers.data();
            }
            change += update_momentum(tensor.state[0], tensor.gradient, scale, mu, rest, from, to, rounding);
          });
      if (watched) update.digests.kept[static_cast<std::size_t>(at)] += state_factor(0) * change;
    }
  });
}

LYCEUM_MUON_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

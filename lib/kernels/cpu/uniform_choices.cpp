#include "kernels/uniform_choices.h"

#include <algorithm>

#include "kernels/cpu/parallel_for.h"
#include "kernels/uniform_numbers.h"

namespace lyceum {

template <class A>
void run(const CpuStream& stream, const UniformChoices<A>& choices) {
  require_fitting(choices);
  const std::int64_t tokens = choices.index.rows, k = choices.index.cols;
  const std::uint64_t key = uniform_key(choices.draw.seed);
  const auto step = choices.draw.step.empty() ? 0u : static_cast<std::uint32_t>(choices.draw.step[0]);
  parallel_for(stream, tokens, rows_per_thread(8 * k), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      draw_experts(key, choices.draw.layer, step, token_of(choices.draw, r), choices.experts, choices.index.row(r), k);
      std::fill_n(choices.gates.row(r), k, static_cast<A>(choices.gate));
    }
  });
  if (choices.counts.rows > 0) {
    for (std::int64_t r = 0; r < tokens; ++r) {
      for (std::int64_t i = 0; i < k; ++i) ++choices.counts.row(i)[choices.index.row(r)[i]];
    }
  }
  const auto all = static_cast<double>(tokens), experts = static_cast<double>(choices.experts);
  for (double& sum : choices.probability) sum += all / experts;
  for (double& sum : choices.entropy) sum += all * std::log(experts);
}

LYCEUM_UNIFORM_CHOICES_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum

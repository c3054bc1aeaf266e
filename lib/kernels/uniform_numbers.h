#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/random.h"
#include "kernels/checks.h"
#include "kernels/cuda/host_device.h"
#include "kernels/uniform_choices.h"

namespace lyceum {

/// Returns the Philox key of uniform routing, which differs from the keys of other uses of the same seed.
constexpr std::uint64_t uniform_key(std::uint64_t seed) { return splitmix64(seed ^ 0x756e69666f726du); }

/// Draws k different experts of a token. `key` is uniform_key(seed). The i-th one is drawn from those that are left:
/// word i mod 4 of Philox block i / 4 determines how many smaller ones are left.
LYCEUM_HOST_DEVICE void draw_experts(std::uint64_t key, std::int64_t layer, std::uint32_t step, std::int64_t token,
                                     std::int64_t experts, std::int32_t* chosen, std::int64_t k) {
  const auto at = static_cast<std::uint64_t>(token);
  std::array<std::uint32_t, 4> words{};
  for (std::int64_t i = 0; i < k; ++i) {
    if (i % 4 == 0) {
      words = philox4x32({static_cast<std::uint32_t>(at),
                          static_cast<std::uint32_t>(at >> 32 << 16 | static_cast<std::uint64_t>(layer)), step,
                          static_cast<std::uint32_t>(i / 4)},
                         {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    }
    const auto smaller = static_cast<std::int32_t>(
        words[static_cast<std::size_t>(i % 4)] * static_cast<std::uint64_t>(experts - i) >> 32);
    // The lowest number that exceeds `smaller` by the number of chosen experts up to it has not been chosen.
    std::int32_t expert = smaller, before = -1;
    while (expert != before) {
      before = expert;
      expert = smaller;
      for (std::int64_t j = 0; j < i; ++j) expert += chosen[j] <= before ? 1 : 0;
    }
    chosen[i] = expert;
  }
}

/// Returns the number by which the token of a row draws its experts.
LYCEUM_HOST_DEVICE std::int64_t token_of(const UniformDraw& draw, std::int64_t row) {
  const std::int64_t token = draw.first + row;
  return draw.period > 0 ? token % draw.period : token;
}

/// Throws an Error unless the operands fit together. Used by all devices.
template <class A>
void require_fitting(const UniformChoices<A>& choices) {
  const auto& [seed, layer, first, period, step] = choices.draw;
  constexpr std::int64_t most_layers = std::int64_t{1} << 16, most_tokens = std::int64_t{1} << 48;
  require(layer >= 0 && layer < most_layers && first >= 0 && first < most_tokens && period >= 0,
          "UniformChoices: no choice is defined for layer {} and token {}", layer, first);
  if (!step.empty()) require_length("UniformChoices", "step", step, 1);
  const std::int64_t tokens = choices.index.rows, k = choices.index.cols;
  require(k >= 1 && k <= choices.experts, "UniformChoices: {} different experts of {} cannot be chosen", k,
          choices.experts);
  require_extents("UniformChoices", "gates", choices.gates, tokens, k);
  if (choices.counts.rows > 0) require_extents("UniformChoices", "counts", choices.counts, k, choices.experts);
  if (!choices.probability.empty()) {
    require_length("UniformChoices", "probability", choices.probability, choices.experts);
  }
  if (!choices.entropy.empty()) require_length("UniformChoices", "entropy", choices.entropy, 1);
}

}  // namespace lyceum

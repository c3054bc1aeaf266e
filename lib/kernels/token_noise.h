#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/random.h"
#include "kernels/checks.h"
#include "kernels/cuda/host_device.h"
#include "kernels/logistic.h"
#include "kernels/noise.h"

namespace lyceum {

/// Returns the Philox key of router noise, which differs from the keys of other uses of the same seed.
constexpr std::uint64_t noise_key(std::uint64_t seed) { return splitmix64(seed ^ 0x726f75746572u); }

/// Returns ε of one token (see TokenNoise) for columns [4 · quad, 4 · quad + 4), by the Box-Muller transform of one
/// Philox block. `key` is noise_key(seed).
template <class A>
LYCEUM_HOST_DEVICE std::array<A, 4> token_noise(std::uint64_t key, std::int64_t layer, std::uint32_t step,
                                                std::int64_t token, std::int64_t quad) {
  const auto at = static_cast<std::uint64_t>(token);
  const std::array<std::uint32_t, 4> words = philox4x32(
      {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32 << 16 | static_cast<std::uint64_t>(layer)),
       step, static_cast<std::uint32_t>(quad)},
      {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
  std::array<A, 4> normal{};
  for (int pair = 0; pair < 2; ++pair) {
    const A u = (static_cast<A>(words[2 * pair]) + A(0.5)) * A(0x1p-32);
    const A angle = 2 * std::numbers::pi_v<A> * (static_cast<A>(words[2 * pair + 1]) * A(0x1p-32));
    const A radius = std::sqrt(-2 * std::log(u));
    normal[2 * pair] = radius * std::cos(angle);
    normal[2 * pair + 1] = radius * std::sin(angle);
  }
  return normal;
}

/// Throws an Error unless `step` has one element and layer and first are in range. Used by all devices.
inline void require_fitting(const char* kernel, const TokenNoise& noise) {
  constexpr std::int64_t most_layers = std::int64_t{1} << 16, most_tokens = std::int64_t{1} << 48;
  require(noise.layer >= 0 && noise.layer < most_layers && noise.first >= 0 && noise.first < most_tokens,
          "{}: no noise is defined for layer {} and token {}", kernel, noise.layer, noise.first);
  require_length(kernel, "step", noise.step, 1);
}
template <class A>
void require_fitting(const AddNoise<A>& add) {
  require_extents("AddNoise", "x", add.x, add.y.rows, add.y.cols);
  require_extents("AddNoise", "scale", add.scale, add.y.rows, add.y.cols);
  require_fitting("AddNoise", add.noise);
}
template <class A>
void require_fitting(const AddNoiseBackward<A>& add) {
  require_extents("AddNoiseBackward", "scale", add.scale, add.d_scale.rows, add.d_scale.cols);
  require_extents("AddNoiseBackward", "dy", add.dy, add.d_scale.rows, add.d_scale.cols);
  require_fitting("AddNoiseBackward", add.noise);
}

}  // namespace lyceum

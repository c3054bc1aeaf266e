#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/host_device.h"

namespace lyceum {

/// The pairs of columns that rotary positions rotate in a head with n pairs.
enum class RopeLayout {
  half,         // (x_i, x_{i + n}), as in most models of transformers
  interleaved,  // (x_{2i}, x_{2i + 1}) [Su et al. 2021], as in DeepSeek-V3
};

/// The rules that change the frequencies of rotary positions, so that a model that was trained with short sequences can
/// process longer ones.
enum class RopeScalingKind {
  none,
  linear,  // position interpolation [Chen et al. 2023]
  llama3,  // by the number of rotations in the original length [Llama 3.1]
  yarn,    // by the index of the pair [Peng et al. 2023]
};

/// Scaled rotary positions, as ROPE_INIT_FUNCTIONS of transformers 5 defines them. A part `kept` of each frequency
/// stays as it is, and the rest is divided by the factor, see rope_frequency().
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;  // ratio of the new length to the original one, at least 1
  /// Bounds between which `kept` changes linearly: for llama3, numbers of rotations in the original length, and `kept`
  /// rises from 0 to 1; for yarn, indices of pairs, and `kept` falls from 1 to 0. Unused otherwise.
  double low = 0, high = 0;
  double original_length = 0;   // number of positions that the model was trained with; llama3 only
  double attention_factor = 1;  // multiplies cos and sin, so scores are multiplied by its square
};

/// Returns the frequency of pair i in radians per position. `dim`: number of dimensions over which the frequencies are
/// spread. With f = base^(−2i/dim), it is f · (kept + (1 − kept) / factor):
///   none    kept = 1
///   linear  kept = 0
///   llama3  kept = (L·f/2π − low) / (high − low), limited to [0, 1], with L the original length
///   yarn    kept = 1 − (i − low) / (high − low), limited to [0, 1]
/// The bounds must differ.
LYCEUM_HOST_DEVICE double rope_frequency(double base, std::int64_t dim, const RopeScaling& scaling, std::int64_t i) {
  const double plain = std::pow(base, -static_cast<double>(2 * i) / static_cast<double>(dim));
  if (scaling.kind == RopeScalingKind::none) return plain;
  if (scaling.kind == RopeScalingKind::linear) return plain / scaling.factor;
  constexpr double turn = 6.283185307179586;
  const bool by_pair = scaling.kind == RopeScalingKind::yarn;
  const double at = by_pair ? static_cast<double>(i) : scaling.original_length * plain / turn;
  const double ramp = (at - scaling.low) / (scaling.high - scaling.low);
  const double limited = ramp > 0 ? (ramp < 1 ? ramp : 1) : 0;
  const double kept = by_pair ? 1 - limited : limited;
  return plain * (kept + (1 - kept) / scaling.factor);
}

}  // namespace lyceum

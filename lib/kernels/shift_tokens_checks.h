#pragma once

#include "kernels/checks.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/host_device.h"
#include "kernels/shift_tokens.h"

namespace lyceum {

/// Throws an Error unless the extents of the operands fit together. Used by all devices.
inline void require_fitting(const ShiftTokens& shift) {
  const auto tokens = static_cast<std::int64_t>(shift.inputs.size());
  require_length("ShiftTokens", "targets", shift.targets, tokens);
  if (!shift.starts.empty()) require_length("ShiftTokens", "starts", shift.starts, tokens);
  require_length("ShiftTokens", "shifted_inputs", shift.shifted_inputs, tokens);
  require_length("ShiftTokens", "shifted_targets", shift.shifted_targets, tokens);
  require(shift.seq_len > 0 && tokens % shift.seq_len == 0 && shift.shift >= 0,
          "ShiftTokens: {} tokens in sequences of {} cannot be shifted by {}", tokens, shift.seq_len, shift.shift);
}

/// Writes token `at` of the results.
LYCEUM_HOST_DEVICE void shift_token(const ShiftTokens& shift, std::int64_t at) {
  const auto to = static_cast<std::size_t>(at), from = static_cast<std::size_t>(at + shift.shift);
  const bool inside = at % shift.seq_len + shift.shift < shift.seq_len &&
                      (shift.starts.empty() || shift.starts[from] == shift.starts[to]);
  shift.shifted_inputs[to] = inside ? shift.inputs[from] : 0;
  shift.shifted_targets[to] = inside ? shift.targets[from] : no_target;
}

}  // namespace lyceum

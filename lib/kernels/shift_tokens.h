#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"

namespace lyceum {

/// Shifts the tokens of sequences for multi-token prediction: token i of the result is token i + shift of the same
/// document. At the last `shift` tokens of a document, which have none, the input is 0 and the target no_target.
///
/// A document is a range of tokens of one sequence with the same number in `starts`; without `starts`, every sequence
/// is one document.
struct ShiftTokens {
  std::span<const std::int32_t> inputs, targets;            // [tokens]
  std::span<const std::int32_t> starts;                     // [tokens], or none
  std::int64_t seq_len, shift;                              // seq_len divides tokens; 0 ≤ shift
  std::span<std::int32_t> shifted_inputs, shifted_targets;  // [tokens]
};

void run(const CpuStream& stream, const ShiftTokens& shift);
void run(const CudaStream& stream, const ShiftTokens& shift);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/config.h"
#include "model/staged_model.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// A sequence of tokens, of which the last ones are scored. 1 ≤ scored < tokens.size() ≤ batch.seq_len + 1.
struct ScoredSequence {
  std::vector<std::int32_t> tokens;
  std::int64_t scored;
};

/// Collective over the world. Returns, for each sequence, the sum of log p(token | all tokens before it) over its
/// scored tokens, in nats; equal on all ranks, and on every mesh up to rounding. All ranks must pass the same
/// sequences. The sequences of a batch have the same length, so nothing is padded, and no result depends on the other
/// sequences: a limited capacity of experts (moe.capacity_factor) applies to each sequence by itself. Does not count
/// the model's routing. Throws a bad_input Error if a token is not below model.vocab.
std::vector<double> log_probabilities(StagedModel& model, const RunSetup& setup, const Config& config,
                                      std::span<const ScoredSequence> sequences);

}  // namespace lyceum

#pragma once

#include <cstdint>

#include "config/feature.h"

namespace lyceum {

// A training step with model.consistency > 0 reads each sample twice: sequences 2i and 2i + 1 of every micro-batch are
// its copies, which differ in their random choices of experts, noise and dropout [THOR, Zuo et al. 2022].

/// Returns the number of sequences of a training step that are copies of the same sample.
std::int64_t sample_copies(const Config& config);
/// Returns the number of samples of a training step, over all ranks.
std::int64_t samples_per_step(const Config& config);

void check_consistency(Findings& findings, const Config& config, int world);

}  // namespace lyceum

#pragma once

#include <vector>

#include "core/range.h"
#include "io/config.h"

namespace lyceum {

/// FLOPs of one sequence's forward pass through block `layer` of a resolved configuration, attention causal; a third
/// of what forward and backward take together, as count_model() counts.
double block_flops(const Config& config, std::int64_t layer);
/// The same through final norm and head.
double head_flops(const Config& config);

/// The blocks of each of `stages` pipeline stages, cut so that the one with the most FLOPs has the least possible; the
/// last one has the head as well. Throws a usage Error where there are more stages than blocks.
std::vector<Range> stage_blocks(const Config& config, int stages);

}  // namespace lyceum

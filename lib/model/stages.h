#pragma once

#include <vector>

#include "config/config.h"
#include "core/range.h"

namespace lyceum {

/// FLOPs of one sequence's forward pass through block `layer` of a resolved configuration, attention causal; a third
/// of what forward and backward take together, as count_model() counts.
double block_flops(const Config& config, std::int64_t layer);
/// Of them, what backward does again by model.recompute: the core of attention, or all.
double recomputed_flops(const Config& config, std::int64_t layer);
/// FLOPs of one sequence's forward pass through final norm and head.
double head_flops(const Config& config);
/// Of them, what backward does again by model.loss_chunk: the logits, with which the head's weight gradient is made.
double recomputed_head_flops(const Config& config);

/// FLOPs of one sequence in a pipeline stage: a forward pass, of which each half of backward takes as much, and what
/// backward does again before it.
struct StageFlops {
  double forward = 0, again = 0;
  double early = 0;  // of the half that makes weight gradients, what the half that makes those of inputs does
  double backward_input() const { return again + forward + early; }
  double backward_weight() const { return forward - early; }
  double all() const { return 3 * forward + again; }
};
/// Of a stage of `blocks`, with the head where it is the last.
StageFlops stage_flops(const Config& config, const Range& blocks);

/// The blocks of each of `stages` pipeline stages, cut so that the one with the most FLOPs, forward and backward, has
/// the least possible; the last one has the head as well. Throws a usage Error where there are more stages than blocks.
std::vector<Range> stage_blocks(const Config& config, int stages);

}  // namespace lyceum

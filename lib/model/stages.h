#pragma once

#include <vector>

#include "config/config.h"
#include "core/range.h"

namespace lyceum {

/// Returns the FLOPs of one sequence's forward pass through block `layer`, one of all_blocks(), of a resolved
/// configuration, with causal attention. This is a third of the causal FLOPs of forward and backward that count_model()
/// counts.
double block_flops(const Config& config, std::int64_t layer);
/// Returns the FLOPs of one sequence in block `layer` that backward repeats because of model.recompute. none: 0;
/// selective: those of attention's scores and weighted sums, and of the matrices in
/// AttentionCosts::repeated_parameters; full: those of the whole block.
double recomputed_flops(const Config& config, std::int64_t layer);
/// Returns the FLOPs of one sequence's forward pass through the final norm and the head.
double head_flops(const Config& config);
/// Returns the FLOPs of one sequence in the head that backward repeats because of model.loss_chunk; 0 if the logits of
/// all tokens are kept. If logits are made in chunks and not kept, backward computes them again. It then also computes
/// the head's weight gradient, whatever the schedule.
double recomputed_head_flops(const Config& config);

/// FLOPs of one sequence in a pipeline stage. Each half of the backward pass (gradients of inputs, gradients of
/// weights) takes as many as the forward pass; before it, backward repeats a part of the forward pass.
struct StageFlops {
  double forward = 0, recomputed = 0;
  /// FLOPs of weight gradients that are spent together with the gradients of inputs (the head with chunked logits).
  double early_weights = 0;
  double backward_input() const { return recomputed + forward + early_weights; }
  double backward_weight() const { return forward - early_weights; }
  double all() const { return 3 * forward + recomputed; }
};
/// Returns the FLOPs of the blocks, projections and norms of all modules of multi-token prediction, without the head.
StageFlops module_block_flops(const Config& config);
/// Returns the FLOPs of all that follows the last block: the final norm, the head, and the modules of multi-token
/// prediction, each of which uses the head once more.
StageFlops output_flops(const Config& config);
/// Returns the FLOPs of the stage that consists of `blocks`; the stage with the last block has the output, too.
StageFlops stage_flops(const Config& config, const Range& blocks);

/// Returns the configuration from whose FLOPs stage_blocks() divides the blocks among pipeline stages. For a later
/// training stage, it has the batch of training stage 1, so that all training stages have the same division.
Config dividing_config(Config config);
/// Returns one contiguous range of blocks, not empty, for each of `stages` pipeline stages. The ranges minimise the
/// FLOPs, forward and backward, of the most expensive stage; the last stage also has the output. The configurations of
/// all training stages of a run have the same ranges, see dividing_config(). Throws a usage Error if there are more
/// stages than blocks.
std::vector<Range> stage_blocks(const Config& config, int stages);

}  // namespace lyceum

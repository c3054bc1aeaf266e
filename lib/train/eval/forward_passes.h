#pragma once

#include <cstdint>
#include <functional>

#include "model/staged_model.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// Forward passes of micro-batches of equal size through all stages of a model, without gradients.
struct ForwardPasses {
  int micro_batches;                // on each data rank
  std::int64_t sequences, seq_len;  // of each micro-batch
  /// Returns the batch of a micro-batch for a stage, with those tensors that the stage reads.
  std::function<TokenBatch(const Transformer& stage, int micro_batch)> load;
  /// Is called after the forward pass of the last stage, on the ranks that have it. batch.token_losses is defined.
  std::function<void(const TokenBatch& batch, int micro_batch)> take;
};

/// Runs the forward passes. Collective over all pipeline and tensor ranks with the same data rank, and over all ranks
/// that share experts with them.
void run(StagedModel& model, const RunSetup& setup, const ForwardPasses& passes);

}  // namespace lyceum

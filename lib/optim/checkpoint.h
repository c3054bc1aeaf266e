#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "optim/optimizer.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {

/// Returns what this rank contributes to a checkpoint: the f32 weights and states that it owns, and the values of
/// frozen units and buffers; the pieces of all ranks cover the model once. Units that are twins of another stage's are
/// left out. The pieces are views: they are valid until the next update.
std::vector<CheckpointPiece> checkpoint_pieces(const Optimizer& optimizer);

/// Fills masters, states and weights of the shares from a checkpoint. States are zero if the checkpoint has none, and
/// those of frozen elements always. `read_files` calls each read of the checkpoint. Throws a bad_input Error if tensors
/// are missing or have other shapes.
void load_checkpoint(Optimizer& optimizer, const CheckpointReader& reader, const RunOnFiles& read_files = run_at_once);

}  // namespace lyceum

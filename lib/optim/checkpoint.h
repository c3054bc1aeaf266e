#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "optim/optimizer.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {

/// Returns this rank's contribution to a checkpoint: the master weights and states that it owns, and its parts of
/// frozen units and buffers. Together, the slices of all ranks cover the model once. Twins of another stage's units are
/// left out. The slices are views that are valid until the next update.
std::vector<CheckpointSlice> checkpoint_slices(const Optimizer& optimizer);

/// Loads masters, states and weights of the shares from a checkpoint. States are set to zero if the checkpoint has
/// none; states of frozen elements always. `read_files` is called with each read. Throws a bad_input Error if tensors
/// are missing or have other shapes.
void load_checkpoint(Optimizer& optimizer, const CheckpointReader& reader, const RunOnFiles& read_files = run_at_once);

}  // namespace lyceum

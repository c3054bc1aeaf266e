#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "optim/optimizer.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {

/// Returns this rank's contribution to a checkpoint: the master weights, states and averages that it owns, and its
/// slices of frozen units and buffers. States have their type (optim.moments) in the checkpoint, all else f32. Local.
/// Together, the slices of all ranks cover every tensor of the model once. Units that duplicate those of another
/// pipeline stage (ParameterUnit::twin()) are left out. The slices are views of the optimizer's memory, on its device,
/// and refer to its stream: write or copy them before the next update, and keep `optimizer` until then.
std::vector<CheckpointSlice> checkpoint_slices(const Optimizer& optimizer);

/// Sets the masters of adapters to their initial values if the checkpoint has no adapters, which load_checkpoint() then
/// keeps. Local.
void draw_missing_adapters(const Optimizer& optimizer, const CheckpointReader& reader, std::uint64_t seed);

/// Loads the masters, states and weights of this rank's shares from a checkpoint, and renews the digests. Every read of
/// a file is passed to `read_files`, which must execute it. Local, unless `read_files` is collective. Throws a
/// bad_input Error if tensors are missing or have other shapes.
/// - States of another type than the optimizer's are rounded to nearest or widened. They are set to zero if the
///   checkpoint has no states, or for a tensor only those of another rule; states of frozen elements always are.
/// - An average that the checkpoint does not have starts from the weights.
/// - Adapters keep their values if the checkpoint has none.
///
/// Before the call, no transfer of weights may be in flight (Zero::await_values()). After it, the caller sends the new
/// weights to other copies (Zero::values_changed()) and restores the number of updates (Optimizer::set_updates()).
void load_checkpoint(Optimizer& optimizer, const CheckpointReader& reader, const RunOnFiles& read_files = run_at_once);

/// Returns the number of tensors for which load_checkpoint() sets a state to zero because the checkpoint has the state
/// of another rule, by the name of the missing state. Empty if the checkpoint has no states at all.
std::map<std::string, std::int64_t> states_of_other_rules(const Config& config, const CheckpointReader& reader);

}  // namespace lyceum

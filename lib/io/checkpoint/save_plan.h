#pragma once

#include "io/checkpoint/contents.h"
#include "io/checkpoint/manifest.h"

namespace lyceum {

/// Returns this rank's slices (names, shapes, boxes, types, without values), the step and the run as JSON, to be sent
/// to the rank that plans the save. Throws a failed Error if a name or a shape cannot be stored.
std::string describe_slices(const CheckpointHeader& header, std::span<const CheckpointSlice> slices);

/// Returns all tensors of the checkpoint, sorted by name, with the boxes that each rank saves. `descriptions` has the
/// result of describe_slices() of every rank, in rank order. Throws a failed Error that names tensor and ranks if the
/// ranks disagree about step, run, a shape or a type, or if the boxes do not cover every tensor exactly once.
std::vector<StoredTensor> plan_tensors(const CheckpointHeader& header, const std::vector<std::string>& descriptions);

}  // namespace lyceum

#pragma once

#include "io/checkpoint/contents.h"
#include "io/checkpoint/manifest.h"

namespace lyceum {

/// Describes a rank's pieces as text for the rank that plans. Throws if a name or a shape cannot be stored.
std::string describe_pieces(const CheckpointHeader& header, std::span<const CheckpointPiece> pieces);

/// Sorts the pieces of all ranks, described in rank order, by tensor. Throws if their shapes differ or they do not
/// cover every tensor exactly once.
std::vector<StoredTensor> plan_tensors(const CheckpointHeader& header, const std::vector<std::string>& descriptions);

}  // namespace lyceum

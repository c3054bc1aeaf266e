#pragma once

#include <span>

#include "plan/units.h"

namespace lyceum {

/// Bytes that a rank holds temporarily for adapted units (ParameterUnit::Role), beside their stored values: at most
/// those of one layer at a time.
struct AdaptedMemory {
  /// Maximum of effective values, without those of units that ZeRO 3 gathers: they are formed in the gathered memory.
  double values = 0;
  double gradients = 0;  // maximum of gradients
  /// These bytes while backward is in the rank's last two layers, when the most activations are kept.
  double early_values = 0, early_gradients = 0;
};
/// Returns these bytes for the units of a rank.
AdaptedMemory adapted_memory(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units);

}  // namespace lyceum

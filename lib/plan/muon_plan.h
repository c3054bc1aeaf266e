#pragma once

#include <span>

#include "plan/traffic.h"
#include "plan/units.h"

namespace lyceum {

/// The part of a step in which Muon brings matrices to their owners, orthogonalises them and returns them.
struct MuonPlan {
  /// FLOPs of the rank that has most, for which all ranks of the stage wait.
  double flops = 0;
  Traffic traffic;
  /// Bytes in the largest round, which are temporary, and of the tables that describe the rounds. Tables are estimated
  /// if tensor or expert-tensor ranks share matrices.
  double peak_bytes = 0, table_bytes = 0;
};
/// Returns the smallest group of the mesh whose ranks exchange the matrices of a group of units. Matrices of experts
/// are exchanged among the ranks of expert_data and expert_tensor; if there are several of both, these are some of
/// data_tensor.
Axis muon_axis(const MeshRank& mesh_rank, ParameterUnit::Group group);
/// Plans it for the rank `mesh_rank`, whose units are `units`. Everything is 0 with optim.rule = adamw.
MuonPlan plan_muon(const Config& config, const MeshRank& mesh_rank, std::span<const PlannedUnit> units);

}  // namespace lyceum

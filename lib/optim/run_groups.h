#pragma once

#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "config/config.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// A group of ranks of a run. On GPUs each group has a separate communicator for tensors.
struct RunGroup {
  /// The transfers of the group.
  enum class Use {
    passes,        // a group of the mesh: what belongs to no other use
    gradients,     // sums of gradients over copies (CopyGroups)
    values,        // gathers over copies (CopyGroups)
    matrices,      // matrices that Muon orthogonalises (MuonExchange)
    experts,       // experts that move (ExpertMover)
    shared_table,  // the sum of the gradients of a table that the first and the last stage share
  };
  std::string name;
  Use use;
  Axis axis;  // of the mesh; for groups of Muon and of experts that move, the stage: data_tensor
  int ranks;
  ParameterUnit::Group units = ParameterUnit::Group::dense;  // of `gradients`, `values` and `matrices`
};

/// Returns the groups of several ranks that this rank of a training run is in. Makes them in a rehearsal, by the
/// functions that the run uses. `adapts_experts`: true if adapters belong to divided experts
/// (ParameterUnit::Group::expert_replicated).
std::vector<RunGroup> training_groups(const Config& config, const Mesh& mesh, bool adapts_experts);
/// Returns the groups of the mesh alone, which evaluation and generation use.
std::vector<RunGroup> mesh_groups(const Mesh& mesh);

}  // namespace lyceum

#pragma once

#include <array>
#include <vector>

#include "autograd/parameter.h"
#include "optim/matrix_slices.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// The groups of units with matrices that Muon may update: all but that of factors of adapters.
inline constexpr std::array muon_groups{ParameterUnit::Group::dense, ParameterUnit::Group::replicated,
                                        ParameterUnit::Group::expert};

/// The ranks of a pipeline stage that hold parts of the units of one group (ParameterUnit::Group), as one of them.
struct MuonGroup {
  MatrixSharing sharing;
  std::vector<int> members;  // by rank in the group: the rank within the stage
  int rank = 0;              // of this rank in the group

  /// Returns the owners of these matrices, see choose_owners(). `loads` [ranks of the stage]: FLOPs by earlier choices.
  /// Those of the members are increased.
  std::vector<int> choose_owners(std::span<const MatrixSlice> matrices, std::vector<double>& loads) const;
};

/// Returns the group of the rank with coordinates `index`. `world`: ranks of the job; `zero`: parallel.zero.
MuonGroup muon_group(const MeshShape& shape, int world, const MeshCoordinates& index, ParameterUnit::Group group,
                     int zero);

}  // namespace lyceum

#pragma once

#include <cstdint>
#include <vector>

#include "autograd/parameter.h"
#include "core/range.h"
#include "optim/matrix_slices.h"
#include "optim/weight_rule.h"
#include "plan/mesh_rank.h"

namespace lyceum {

/// The size and role of a ParameterUnit, without its parameters.
struct PlannedUnit {
  ParameterUnit::Group group;
  int layer;                               // ParameterUnit::layer()
  std::int64_t size;                       // elements of flat memory, including padding
  bool twin = false;                       // ParameterUnit::twin()
  std::vector<UpdateRange> updates = {};   // update_ranges()
  std::vector<MatrixSlice> matrices = {};  // matrix_slices()
  ParameterUnit::Role role = ParameterUnit::Role::trained;
  std::int64_t rounded_slices = 0;  // number of rounded_slices(); 0 unless optim.moments = bf16

  bool trained() const { return role == ParameterUnit::Role::trained; }
};

/// Returns the rank's index among the ranks that hold copies of the units of `group`, see copies_axis().
int copy_index(const MeshRank& mesh_rank, ParameterUnit::Group group);
/// Returns the bytes per element of the unit's values.
std::int64_t value_bytes(const Config& config, const PlannedUnit& unit);
/// Returns the number of elements in the part of the unit that this rank owns if the ranks with copies shard it (ZeRO):
/// the part whose gradients it sums and, with ZeRO 1 to 3, whose values it updates.
std::int64_t owned_elements(const PlannedUnit& unit, const MeshRank& mesh_rank);
/// Returns the range of the unit that this rank's optimizer updates. `zero`: parallel.zero.
Range updated_range(const PlannedUnit& unit, const MeshRank& mesh_rank, int zero);

}  // namespace lyceum

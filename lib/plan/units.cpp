#include "plan/units.h"

#include "parallel/data/copies.h"
#include "parallel/data/flat_range.h"

namespace lyceum {

int copy_index(const MeshRank& mesh_rank, ParameterUnit::Group group) {
  switch (group) {
    case ParameterUnit::Group::dense: return mesh_rank.index.data;
    case ParameterUnit::Group::replicated:
      return mesh_rank.index.data * mesh_rank.shape.tensor + mesh_rank.index.tensor;
    case ParameterUnit::Group::expert_replicated:
      return mesh_rank.index.expert_data * mesh_rank.shape.expert_tensor + mesh_rank.index.expert_tensor;
    default: return mesh_rank.index.expert_data;
  }
}

std::int64_t value_bytes(const Config& config, const PlannedUnit& unit) {
  return unit.role == ParameterUnit::Role::buffer ? accumulator_bytes : element_bytes(config);
}

std::int64_t owned_elements(const PlannedUnit& unit, const MeshRank& mesh_rank) {
  return cut_evenly(unit.size, mesh_rank.size(copies_axis(unit.group)), copy_index(mesh_rank, unit.group)).count;
}

Range updated_range(const PlannedUnit& unit, const MeshRank& mesh_rank, int zero) {
  const int copies = mesh_rank.size(copies_axis(unit.group));
  return zero >= 1 && copies > 1 ? cut_evenly(unit.size, copies, copy_index(mesh_rank, unit.group))
                                 : Range{0, unit.size};
}

}  // namespace lyceum

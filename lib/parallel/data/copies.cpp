#include "parallel/data/copies.h"

#include <utility>

namespace lyceum {

Axis copies_axis(ParameterUnit::Group group) {
  switch (group) {
    case ParameterUnit::Group::dense: return Axis::data;
    case ParameterUnit::Group::replicated: return Axis::data_tensor;
    case ParameterUnit::Group::expert: return Axis::expert_data;
    case ParameterUnit::Group::expert_replicated: return Axis::expert_copies;
  }
  fail(ExitCode::failed, "unknown group of parameters");
}

CopyGroups new_copy_groups(const Mesh& mesh, ParameterUnit::Group group) {
  const ProcessGroup& holders = copies(mesh, group);
  const auto named = [&](const char* use) { return holders.split(0, holders.rank(), holders.name() + use); };
  ProcessGroup reductions = named(" gradients"), gathers = named(" values");
  return {std::move(reductions), std::move(gathers)};
}

}  // namespace lyceum

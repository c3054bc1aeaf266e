#pragma once

#include <array>

#include "autograd/parameter.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

inline constexpr std::array parameter_groups{ParameterUnit::Group::dense, ParameterUnit::Group::replicated,
                                             ParameterUnit::Group::expert, ParameterUnit::Group::expert_replicated};

/// Returns the axis over whose ranks a group's parameters are replicated, and their gradients must be summed.
Axis copies_axis(ParameterUnit::Group group);
/// Returns the process group of that axis.
inline const ProcessGroup& copies(const Mesh& mesh, ParameterUnit::Group group) {
  return mesh.group(copies_axis(group));
}

/// The ranks that hold copies of the same units. Reductions and gathers have separate communicators, so that neither
/// waits for the other and their relative order may differ between ranks.
struct CopyGroups {
  ProcessGroup reductions, gathers;
};
/// Collective over copies(). Returns two new groups of these ranks.
CopyGroups new_copy_groups(const Mesh& mesh, ParameterUnit::Group group);

}  // namespace lyceum

#pragma once

#include <array>

#include "autograd/parameter.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

inline constexpr std::array parameter_groups{ParameterUnit::Group::dense, ParameterUnit::Group::replicated,
                                             ParameterUnit::Group::expert};

/// The ranks that hold copies of a group's parameters: their gradients are to be summed over it.
Axis copies_axis(ParameterUnit::Group group);
inline const ProcessGroup& copies(const Mesh& mesh, ParameterUnit::Group group) {
  return mesh.group(copies_axis(group));
}

}  // namespace lyceum

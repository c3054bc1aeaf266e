#pragma once

#include <array>

#include "autograd/parameter.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

inline constexpr std::array parameter_groups{ParameterUnit::Group::dense, ParameterUnit::Group::replicated,
                                             ParameterUnit::Group::expert};

/// The ranks that hold copies of a group's parameters: their gradients are to be summed over it.
const ProcessGroup& copies(const Mesh& mesh, ParameterUnit::Group group);

}  // namespace lyceum

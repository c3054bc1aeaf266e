#pragma once

#include <array>

#include "autograd/parameter.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

inline constexpr std::array parameter_groups{ParameterUnit::Group::dense, ParameterUnit::Group::replicated,
                                             ParameterUnit::Group::expert};

/// The ranks that hold copies of a group's parameters: their gradients are to be summed over it.
const ProcessGroup& copies(const Mesh& mesh, ParameterUnit::Group group);

/// Collective over this rank's stage: the sum over all of the stage's parameters of a quantity of which `own` is that
/// of this rank's parameters of one group, each counted once, however many copies there are. The same on all ranks.
double sum_over_parts(const Mesh& mesh, ParameterUnit::Group group, double own);

}  // namespace lyceum

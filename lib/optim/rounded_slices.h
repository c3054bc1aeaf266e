#pragma once

#include <cstdint>
#include <vector>

#include "autograd/parameter.h"
#include "kernels/stochastic_rounding.h"

namespace lyceum {

/// Returns where the elements of a unit are in their logical tensors, for the rounding of states to bfloat16
/// (optim.moments). The slices cover the whole unit in order; positions count from element `begin` of the unit, so they
/// may be negative. There is at least one. `seed`: run.seed.
std::vector<RoundedSlice> rounded_slices(std::uint64_t seed, const ParameterUnit& unit, std::int64_t begin);

}  // namespace lyceum

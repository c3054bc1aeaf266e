#pragma once

#include <cstdint>
#include <vector>

#include "autograd/parameter.h"
#include "kernels/stochastic_rounding.h"

namespace lyceum {

/// Maps the elements of a unit to the elements of their logical tensors, for the rounding of states to bfloat16
/// (optim.moments). The slices, at least one, cover the whole unit in order. RoundedSlice::first and end count from
/// element `begin` of the unit, so they may be negative. `seed`: run.seed.
std::vector<RoundedSlice> rounded_slices(std::uint64_t seed, const ParameterUnit& unit, std::int64_t begin);

}  // namespace lyceum

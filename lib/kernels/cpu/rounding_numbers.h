#pragma once

#include <cstdint>

#include "kernels/stochastic_rounding.h"

namespace lyceum {

/// Writes the random numbers that round the states of elements [first, last) of a flat tensor, at most flat_block, to
/// `numbers` [last - first]. Its slices are `slices` slices of `rounding`, from `first_slice` on.
void fill_rounding_numbers(const StateRounding& rounding, std::int64_t first_slice, std::int64_t slices,
                           std::int64_t first, std::int64_t last, std::uint16_t* numbers);

}  // namespace lyceum

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Whether elements of this type can be reduced: f32, bf16, f64, i32, i64.
bool reducible(DType type);

/// out[i] = x_0[i] + x_1[i] + … (or the largest, the smallest) over `sources` in their order, i < count. A NaN stays.
/// Sums of bf16 are kept in f32 and rounded once.
/// `out` may be one of the sources.
void reduce_in_order(std::span<const std::byte* const> sources, std::byte* out, std::int64_t count, DType type,
                     Reduction reduction);

}  // namespace lyceum

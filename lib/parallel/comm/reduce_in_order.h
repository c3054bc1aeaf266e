#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// True if elements of this type can be reduced: f32, bf16, f64, i32, i64.
bool reducible(DType type);

/// Sets out[i] = x_0[i] + x_1[i] + … (or the maximum, the minimum) for i < count, over the elements x of `sources` in
/// their order. A NaN in any source gives a NaN. bf16 is summed in f32 and rounded once. `out` may be one of the
/// sources. Throws an Error for u8.
void reduce_in_order(std::span<const std::byte* const> sources, std::byte* out, std::int64_t count, DType type,
                     Reduction reduction);

}  // namespace lyceum

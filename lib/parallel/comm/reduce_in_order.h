#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// True if elements of this type can be reduced: f32, bf16, f64, i32, i64.
bool reducible(DType type);

/// The terms of a reduction, in the order in which they are added, and their type.
struct Terms {
  std::span<const std::byte* const> sources;
  DType type;
};
/// The result of a reduction and its type.
struct Reduced {
  std::byte* out;
  DType type;
};

/// Sets out[i] = x_0[i] + x_1[i] + … (or the maximum, the minimum) for i < count, over the elements x of the sources in
/// their order. A NaN in any source gives a NaN. Terms and result have one type, except that either may be bf16 with
/// the other in f32. bf16 is summed in f32 and rounded once, if the result is bf16. `out` may be one of the sources if
/// the types are equal. Throws an Error for other types.
void reduce_in_order(const Terms& terms, const Reduced& result, std::int64_t count, Reduction reduction);

}  // namespace lyceum

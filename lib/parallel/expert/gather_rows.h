#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace lyceum {

/// Returns y with y[i] = x[source[i] / divisor], or zeros if source[i] is -1. x [rows, width] of a float type or
/// i32, which gets -1 instead of zeros; source: i64.
Tensor gather_rows(const Stream& stream, const Tensor& x, const Tensor& source, std::int64_t divisor = 1);

}  // namespace lyceum

#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace lyceum {

/// y[i] = x[source[i] / divisor], zero where that is −1. x: [rows, width], of floats or i32; source: i64
Tensor gather_rows(const Stream& stream, const Tensor& x, const Tensor& source, std::int64_t divisor = 1);

}  // namespace lyceum

#pragma once

#include "core/tensor.h"

namespace lyceum {

/// Returns x converted to floating type `type`; x itself if it has that type.
Tensor cast(const Stream& stream, const Tensor& x, DType type);

}  // namespace lyceum

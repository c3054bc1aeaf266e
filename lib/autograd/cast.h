#pragma once

#include "core/tensor.h"

namespace lyceum {

/// x in another floating type; x itself where it has that type already.
Tensor cast(const Stream& stream, const Tensor& x, DType type);

}  // namespace lyceum

#pragma once

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// FLOP/s of the best of several 512³ GEMMs in `type` on this stream: what MFU is measured against. Takes about 0.2 s.
double measure_gemm_peak(const Stream& stream, DType type);

}  // namespace lyceum

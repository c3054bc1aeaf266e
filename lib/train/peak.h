#pragma once

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Rows and columns of the matrices that measure_gemm_peak() multiplies: 512 on a CPU, 4096 on a GPU.
std::int64_t peak_gemm_size(const Stream& stream);

/// FLOP/s of the best of several GEMMs of that size in `type` on this stream: what MFU is measured against. Takes about
/// 0.2 s.
double measure_gemm_peak(const Stream& stream, DType type);

}  // namespace lyceum

#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

struct GemmPeak {
  double flops;       // a second
  std::int64_t size;  // rows and columns of the matrices
};

/// The best of several square GEMMs in `type` on this stream: what MFU counts against where no maker states it. The
/// matrices have 512 rows; on a GPU as many more as make a GEMM last a millisecond, up to 8192. Takes about 0.2 s.
GemmPeak measure_gemm_peak(const Stream& stream, DType type);

}  // namespace lyceum

#pragma once

#include "core/cuda_stream.h"

namespace lyceum {

/// True if the stream's GPU is sm_90 (which has TMA and warpgroup products) and this program contains sm_90a code.
/// Cached per stream.
bool can_run_hopper_kernels(const CudaStream& stream);

}  // namespace lyceum

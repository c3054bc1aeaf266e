#pragma once

#include "core/cuda_stream.h"

namespace lyceum {

/// Whether the stream's GPU has TMA and products of warpgroups, and this program the code for it (sm_90a).
bool hopper_is_here(const CudaStream& stream);

}  // namespace lyceum

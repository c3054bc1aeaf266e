#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/stream.h"

namespace lyceum {

/// Returns how many grouped products each kernel has computed on a CUDA stream. The keys are names of kernels: "wgmma
/// 128 x 256", "wgmma 128 x 192", "wgmma in clusters", "mma.sync", "plain" (kernels/cuda/grouped_gemm.cuh). Kernels
/// that also apply an activation are counted separately, as "wgmma 128 x 192 with activation". Replays of a graph are
/// not counted. Empty for other streams.
std::map<std::string, std::int64_t> product_kernel_counts(const Stream& stream);

}  // namespace lyceum

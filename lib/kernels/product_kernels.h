#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/stream.h"

namespace lyceum {

/// How many products of experts each kernel has computed on a GPU's stream: "wgmma 128 x 256", "wgmma 128 x 192",
/// "mma.sync", "plain" (kernels/cuda/grouped_gemm.cuh); those that have applied an activation apart, as "wgmma 128 x
/// 192 with activation". What a graph plays back is not counted. Other streams have none.
std::map<std::string, std::int64_t> product_kernels(const Stream& stream);

}  // namespace lyceum
